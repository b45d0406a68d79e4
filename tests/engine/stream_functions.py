"""Functions that make stream tables, where a refresh can import them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def large(orders: DataFrame, customers: DataFrame, least: int = 10) -> DataFrame:
    return orders.join(customers, "customer").where(f"amount > {least}")


def totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy("region").agg({"amount": "sum"}).toDF("region", "total")


def anything(*frames: DataFrame) -> DataFrame:
    return frames[0]


def replaced(orders: DataFrame) -> DataFrame:
    return orders


original: Any = replaced


def replaced(orders: DataFrame) -> DataFrame:  # type: ignore[no-redef]
    return orders.limit(1)
