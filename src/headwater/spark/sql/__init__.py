"""SQL over the lake: `run_sql`."""

from headwater.spark.sql.statement import run_sql

__all__ = ["run_sql"]
