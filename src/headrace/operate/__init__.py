"""What a running application reports and is asked from outside: orders, metrics, hooks and logs; without Spark."""
