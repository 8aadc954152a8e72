"""The native form."""
