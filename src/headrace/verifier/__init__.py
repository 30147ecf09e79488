"""Read-only proofs that a sink holds the batch answer over the committed prefix of its sources."""
