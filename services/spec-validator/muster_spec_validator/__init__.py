"""spec-validator: parses documents of every format into jobs, or rejects them with every problem.

``validation`` validates submissions, ``defaults`` stores the platform defaults, ``queries`` answers gRPC. ``service`` constructs all of it.
"""
