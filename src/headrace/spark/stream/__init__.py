"""What runs beside the batches of a streaming query."""
