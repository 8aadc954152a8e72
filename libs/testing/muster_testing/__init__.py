"""Shared parts of the tests.

Real systems: `broker` and its `fixtures`, `temporary_stream`, `cluster`, `otlp` (a span receiver), `webhook_receiver`,
`echo` (a gRPC service). Simulated: `pool` (a pool without a bus), `recording` (replay of its events), `fake_services`
(all services but the scheduler), `openb_cluster` (a published workload). Hypothesis: `job_strategies`,
`queue_strategies`, `random_events`, `record_invariants`. `conditions` waits.
"""
