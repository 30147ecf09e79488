"""One judgement of texts for all sources: a value arrives exactly as it was written, or its row is bad."""
