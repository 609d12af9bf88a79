"""Operators on integers that stand for floats, and on packed weights."""
