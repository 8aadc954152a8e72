"""The pod-launcher: starts, stops and observes replicas, and reports nodes."""
