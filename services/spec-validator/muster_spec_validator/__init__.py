"""Turns any dialect into one model, or says everything that is wrong with it."""
