"""Owns the queues and the allocations of a pool."""
