"""Turns models with growing caches into steps of fixed shapes."""
