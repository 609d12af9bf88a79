"""What people do with a model or a graph, beside running it: one module each.

Nothing here knows a file format, or the class that `load` returns.
"""
