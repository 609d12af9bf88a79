"""A model as a Python package: see `jaxops.tools.python.source`."""
