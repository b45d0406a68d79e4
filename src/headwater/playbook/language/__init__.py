"""Playbooks as documents: YAML that knows where it stands, what it may say, and what it means."""
