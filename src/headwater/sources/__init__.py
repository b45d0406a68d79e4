"""PostgreSQL tables mirrored into the lake: first copy, change capture, exactly once."""
