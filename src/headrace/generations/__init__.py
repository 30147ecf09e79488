"""What a query keeps in storage: its layout, locks, records, manifest and names; without a JVM."""
