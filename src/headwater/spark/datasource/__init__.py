"""`format("ducklake")`: DuckLake tables as a data source of Spark, batch and streaming, through Arrow."""
