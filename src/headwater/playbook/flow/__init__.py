"""Running a playbook: steps, loops, retries, and what is kept of it."""
