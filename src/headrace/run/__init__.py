"""Start queries, supervise them to their end, and record each batch."""
