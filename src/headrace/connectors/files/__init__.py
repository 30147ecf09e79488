"""Files: a directory as a source, a directory as a sink."""
