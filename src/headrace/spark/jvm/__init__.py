"""The JVM and its session: started, configured, and given its jars."""
