from muster_testing.fixtures import broker, bus, fresh, shared_broker, shared_bus

__all__ = ["broker", "bus", "fresh", "shared_broker", "shared_bus"]
