"""Tools for models: inspect, compare, draw, convert, export, generate; each in its own module.

They work on the `Graph` of a model, and do not depend on a file format.
"""
