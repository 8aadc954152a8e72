"""Inputs and reports of ``muster simulate``."""
