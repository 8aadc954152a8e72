"""Kubernetes pod templates, as every dialect that has them reads them."""
