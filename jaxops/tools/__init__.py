"""What people do with a model once it runs: look inside it, compare it, draw it, export it; one module each.

Everything here works on the `Graph` of a model, and knows no file format.
"""
