"""The limits of an export: for which sizes its program runs, from the questions that a trace leaves open.

`jaxops.shapes.arithmetic` raises a SizeError with a requirement, `tables` one for positions beyond a table; `solver`
finds limits under which it holds, and `learned` keeps those of one export.
"""
