"""Inspects models: nodes, shapes, parameters, operation counts, differences from other runtimes."""
