"""Spark's standalone cluster on this machine, for trying and for tests: started, looked at and stopped."""
