"""Generated gRPC stubs and the converters to and from the core models."""
