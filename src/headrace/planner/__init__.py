"""What a written query would change of the one that ran, and what each difference means for its result."""
