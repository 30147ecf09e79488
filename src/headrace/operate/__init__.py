"""What a running application tells and is asked from outside: orders, metrics, hooks and logs; without Spark."""
