"""What knows Spark's inside: session, plans, messages, jars."""
