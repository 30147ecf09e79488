"""Everything before the first batch of a query: plan, check, prepare, open the sink, start."""
