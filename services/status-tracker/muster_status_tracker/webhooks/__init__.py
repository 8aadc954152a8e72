"""Webhooks: every change of a job's phase is posted to the configured receivers.

The event stream is the outbox, so nothing else is written when a job changes: each receiver has a position in the stream
of each partition, and notifications are derived from the events after it. The successor of a killed instance derives the
same notifications.
"""
