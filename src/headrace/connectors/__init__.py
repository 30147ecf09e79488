"""Sources and sinks, one package for each system."""
