"""The DuckLake catalog: what exists, what a snapshot holds, and commits that DuckDB accepts."""
