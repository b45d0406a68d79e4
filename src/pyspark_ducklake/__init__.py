"""Lets Spark find `format("ducklake")` by itself.

PySpark looks for installed modules named `pyspark_*` and registers their `DefaultSource`.
"""
