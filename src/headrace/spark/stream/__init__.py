"""What runs next to the batches of a streaming query."""
