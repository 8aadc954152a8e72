"""Arena's command line."""
