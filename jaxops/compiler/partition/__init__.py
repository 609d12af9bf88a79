"""Cuts programs into parts: operations that depend on the weights alone, and layers that repeat."""
