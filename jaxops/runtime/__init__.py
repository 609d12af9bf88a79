"""Runs one call of a model."""
