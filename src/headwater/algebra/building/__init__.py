"""From Spark SQL to the relational algebra."""

from headwater.algebra.building.context import Catalog, Found
from headwater.algebra.building.query import build_query

__all__ = ["Catalog", "Found", "build_query"]
