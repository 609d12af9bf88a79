"""The tools of a model that runs: inspect it, compare it, draw it, export it; one module each.

Everything here works on the `Graph` of a model, and knows no file format.
"""
