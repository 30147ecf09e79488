"""What Python code means, compared by its syntax tree and by the values that it uses."""
