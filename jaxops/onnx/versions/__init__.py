"""Versions of ONNX operators whose signature or meaning differs from the function in `jaxops.ops`.

One file per family. An adapter has the signature of its version, so that an attribute which the version does not have
is an error. A version needs no adapter if it has fewer attributes than the function, or has as an attribute what is an
input of the same name in later versions.
"""
