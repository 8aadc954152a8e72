"""What ``muster simulate`` reads and shows; the simulating itself is the core's."""
