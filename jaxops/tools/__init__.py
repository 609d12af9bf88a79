"""What people do with a model once it runs: look inside it, compare it, count it, draw it, shard it, narrow it.

Everything here works on the `Graph` of a model, and knows no file format.
"""
