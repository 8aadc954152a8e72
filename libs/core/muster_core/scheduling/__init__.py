"""The scheduler of a pool: queues, placement, reservations, resizing, explanations."""
