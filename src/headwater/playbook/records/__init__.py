"""Runs of playbooks: what is kept of them, shown of them, and kept out of sight."""
