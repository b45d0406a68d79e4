"""Where results are published: tables of the lake, of other lakes, of PostgreSQL."""
