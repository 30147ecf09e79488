"""A Python data source of the user's own."""
