"""DuckLake tables in Spark."""
