"""Queries supervised to their end, and the record of each batch."""
