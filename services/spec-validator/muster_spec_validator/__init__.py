"""Turns any format into one model, or says everything that is wrong with it."""
