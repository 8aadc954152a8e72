"""Polyaxon 1.x documents (``version: 1.1``).

``document``: the reader, imported when such a document is read; merges an operation with its component. ``fields``: tables of operations
and components. ``run_fields``: tables of runs. ``expressions``: ``{{ ... }}``. ``parameters``: values of inputs. ``run``: runs of every
kind. ``roles``: their roles. ``pod``: the pod of a replica.
"""
