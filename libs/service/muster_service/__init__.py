"""What every service needs: settings, bus, leases, telemetry, gRPC host, health."""
