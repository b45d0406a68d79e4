"""What can be wrong with a lake, and finding it."""
