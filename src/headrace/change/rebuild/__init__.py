"""A new generation of a query, computed beside the one in use, and then exchanged with it."""
