"""What Spark's own file formats share, in a directory and in a table of the catalog."""
