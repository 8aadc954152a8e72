"""Kubeflow's TrainJob, if it is self-contained.

``fields``: its tables. ``reader``: documents into jobs.
"""
