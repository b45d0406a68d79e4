"""Playbooks: steps of SQL and other tools, read from YAML and run by worker processes or Spark."""
