"""A model as a graph, independent of file formats, and the interpreter that runs it as a pure function.

`nodes` holds the data, and `operator` the facts about an operator that a graph needs. `static_analysis` finds the
values that must be known while tracing, `parameters` separates parameters from static values, and `interpreter` runs
the nodes.
"""
