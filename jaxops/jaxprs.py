"""Tools for those who read jaxprs."""

from jaxops.compiler.lax_only import lax_only

__all__ = ["lax_only"]
