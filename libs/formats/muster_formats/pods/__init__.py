"""Kubernetes pod templates, as every format that has them reads them."""
