"""What every service needs, without a word of the domain.

Modules are imported by name, so that a process loads only those that it uses:
    app: the life of a service process; supervisor: its parts; readiness: when it can work.
    settings: environment variables to a struct.
    grpc_server, grpc_calls, grpc_client: servers, the interceptor of their calls, channels.
    http_server, metrics: metrics and health over HTTP.
    logs, tracing, trace_context: logs and spans.
"""
