"""What steps give back: envelopes, values as JSON has them, errors."""
