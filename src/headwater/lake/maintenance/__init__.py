"""Keeping a lake healthy: fewer and larger files, no more history than is wanted, no files nobody needs."""
