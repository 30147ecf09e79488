"""The commit protocol of the product under a seeded scheduler, without a JVM."""
