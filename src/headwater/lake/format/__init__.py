"""DuckLake's own forms: types, values, statistics, partitions, names."""
