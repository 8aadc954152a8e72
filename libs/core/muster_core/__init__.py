"""The pure core: models, quantities, formats, placement, queues, elasticity, lifecycle."""
