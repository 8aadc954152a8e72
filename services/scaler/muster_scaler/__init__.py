"""scaler: proposes to resize running jobs. ``handlers`` plans, ``service`` constructs the adapters and the leadership."""
