"""Converts models to other types, and distributes them over devices."""
