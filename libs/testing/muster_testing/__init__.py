"""A real broker, an OTLP sink and a virtual clock, as pytest fixtures."""
