"""Attention, in the many forms that language models and encoders call it, with caches and without."""
