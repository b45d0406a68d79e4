"""Finding every mistake of a playbook without running anything."""
