"""Templates in the values of playbooks, and the names they see."""
