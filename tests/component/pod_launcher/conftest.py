from muster_testing.fixtures import broker, bus, shared_broker

__all__ = ["broker", "bus", "shared_broker"]
