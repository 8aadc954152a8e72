"""Kubeflow's TrainJob, where its runtime is inline."""
