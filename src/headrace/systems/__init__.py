"""What the source and the sink of one system share: how its own client is asked."""
