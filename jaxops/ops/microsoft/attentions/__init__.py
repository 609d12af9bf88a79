"""Attention in the many forms that language models and encoders use, with caches and without."""
