"""The only hands: creates, deletes and watches replicas; reports nodes."""
