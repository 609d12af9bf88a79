"""Where the meaning of an operation is not that of a function of `jaxops.ops` by the same name: a few lines for each.

A function here has the inputs and attributes of the class that it is registered for, and calls public operators.
"""
