"""SQL as data: parsing and rewriting, with no I/O."""
