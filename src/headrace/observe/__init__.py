"""What a running application reports and is asked from outside, and what is kept of it; without Spark."""
