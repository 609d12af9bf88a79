"""Versions of ONNX operators whose signature or meaning differs from the function in `jaxops.ops`.

One file a family. The signature of an adapter is the signature of its version, so an attribute that the version
does not have is refused, and one that the adapter does not know is an error. A version in which an attribute was to
become an input of the same name, or which has fewer attributes, needs no adapter.
"""
