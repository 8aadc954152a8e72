"""A trace store for one machine: takes spans by OTLP and answers for a trace as Jaeger does.

With it `muster trace` works the same on a laptop, where nobody runs Jaeger, and on a cluster, where somebody does.
"""
