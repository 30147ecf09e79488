"""Kafka: topics as a source and a sink."""
