"""Delta Lake: tables as a source and a sink."""
