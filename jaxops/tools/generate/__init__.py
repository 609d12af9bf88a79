"""Decoders: steps of fixed shapes out of models with growing caches."""
