"""A model as data, whatever format it came from, and the pure function that it is.

`nodes` holds the data, `operator` says what a graph needs to know of an operator; `static_inputs` finds what must be
known while tracing, `params` tells parameters from static values, `trace` walks over the nodes, `border` turns what a
caller gives into what the walk needs. Nothing here knows a file format.
"""
