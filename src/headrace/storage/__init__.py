"""Where a project keeps what it needs."""
