"""The running service: what is due, who does it, and what it says of itself."""
