"""Generated stubs of the queries between services."""
