from muster_testing.fixtures import fresh, shared_broker, shared_bus

__all__ = ["fresh", "shared_broker", "shared_bus"]
