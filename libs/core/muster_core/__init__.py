"""The pure core: models, quantities, dialects, placement, queues, elasticity, lifecycle."""
