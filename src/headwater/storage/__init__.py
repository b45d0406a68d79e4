"""Object stores and Parquet files."""
