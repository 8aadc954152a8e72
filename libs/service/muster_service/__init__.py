"""What every service needs: settings, logs, telemetry, gRPC host and channels, health."""
