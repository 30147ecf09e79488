"""Where a project keeps what it needs: one interface to disks, HDFS and object stores, and durable files upon it."""
