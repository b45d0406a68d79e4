"""Where tasks run: worker processes of this machine, or Spark's executors."""
