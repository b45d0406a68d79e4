"""The ducklake tool: SQL of DuckDB on lakes, by any number of workers at once."""
