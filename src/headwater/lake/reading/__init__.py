"""What a reader must do to see a table at one snapshot, and doing it."""
