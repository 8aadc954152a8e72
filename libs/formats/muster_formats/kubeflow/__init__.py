"""Kubeflow's kinds: one family of documents, a file for each kind."""
