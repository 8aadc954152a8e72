"""muster up: the broker and the six services on this machine, supervised."""
