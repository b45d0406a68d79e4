"""Scans of the lake as Spark DataFrames."""
