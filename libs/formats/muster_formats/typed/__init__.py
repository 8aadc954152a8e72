"""The rules for a job that came as data."""
