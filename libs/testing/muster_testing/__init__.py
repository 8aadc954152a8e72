"""A real broker, a real cluster and an OTLP sink, as pytest fixtures."""
