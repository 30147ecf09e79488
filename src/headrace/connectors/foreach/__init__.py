"""The user's own code as a sink."""
