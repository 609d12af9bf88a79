"""A model as data, whatever format it came from, and the walk that makes a pure function of it.

`nodes` holds the data, and `operator` the facts about an operator that a graph needs; `static_analysis` finds the
names that must be known while tracing, `parameters` tells parameters from static values, `interpreter` walks over the
nodes. Nothing here knows a file format.
"""
