"""Operations whose meaning differs from the function of `jaxops.ops` with the same name: a few lines for each.

A function here has the inputs and attributes of the class that it is registered for, and calls public operators.
"""
