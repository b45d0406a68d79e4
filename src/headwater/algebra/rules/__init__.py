"""What a change of its inputs means for each operator: one rule per file, its law above it."""
