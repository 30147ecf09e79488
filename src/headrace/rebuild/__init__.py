"""A new generation of a query, computed beside the one that goes on, and then exchanged with it."""
