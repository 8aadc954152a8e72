"""The gateway: the public API. It has no authentication: put it behind a proxy that has, or keep its port private.

``submissions`` makes submissions durable, once for each request id. ``jobs`` reads and controls jobs, ``replicas`` runs commands in
replicas and forwards ports, ``explanations`` explains jobs, ``cluster`` serves nodes, queues and platform defaults; ``calls`` has what they
share. ``bus`` publishes events and receives validations. ``service`` constructs all of it.
"""
