"""A small project and events for it, so that everything can be seen at work on one machine."""
