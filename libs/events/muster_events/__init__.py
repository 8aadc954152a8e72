"""Every subject, stream, durable and event of the bus, and the codec."""
