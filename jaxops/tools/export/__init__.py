"""Exports models as programs of `jax.export`, and finds the sizes that a program serves."""
