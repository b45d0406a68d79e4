"""Rows of Spark on their way into the lake."""
