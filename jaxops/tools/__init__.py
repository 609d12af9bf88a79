"""What people do with a model once it runs: look inside it, compare it, count it, draw it, generate text with it.

Everything here works on the `Graph` of a model or on what it computes, and knows no file format.
"""
