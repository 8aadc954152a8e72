"""The trace sink: stores spans on one machine and returns traces like Jaeger, so that `muster trace` works without
Jaeger.

`service` has the OTLP receiver and the query API, `store` the SQLite store; `python -m muster_local.traces` runs it.
"""
