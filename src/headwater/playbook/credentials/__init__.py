"""What playbooks log in with."""
