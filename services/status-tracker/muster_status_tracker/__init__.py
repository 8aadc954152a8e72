"""Owns the life cycle and the record of a job; answers reads."""
