"""The scheduler: owns the queues and allocations of a pool."""
