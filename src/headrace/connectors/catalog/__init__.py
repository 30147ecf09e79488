"""Tables of Spark's catalog as a source and a sink."""
