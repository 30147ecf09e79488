"""Changes of a stopped query: rebuild, rewind, reset and adopt, each recorded before its first step."""
