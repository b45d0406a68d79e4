"""Stream tables: their definitions, and how they are kept up to date."""
