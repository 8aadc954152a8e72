"""Commands in replicas, and connections to their ports."""
