"""Polyaxon 0.x documents (``version: 1``).

``document``: the reader, imported when such a document is read. ``fields``: its tables. ``field_types``: types of values, and resources.
``environment``: settings of a replica, and its pod. ``parameters``: inputs and placeholders. ``roles``: replicas of an experiment.
``jobs``: builds, notebooks, TensorBoards and plain jobs.
"""
