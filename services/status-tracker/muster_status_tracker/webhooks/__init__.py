"""Telling the outside: every change of a job's phase is posted to the receivers that an operator has named.

The events in the stream are the outbox. Nothing is written when a job changes: each receiver has a place in the stream, the events between
that place and the end are derived from the events, and so a killed copy's successor derives the very same ones.
"""
