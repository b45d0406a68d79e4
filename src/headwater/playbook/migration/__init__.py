"""From steps on DuckDB files to steps on lakes."""
