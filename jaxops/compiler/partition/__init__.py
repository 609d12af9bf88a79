"""Cuts programs in parts: what depends on the weights alone, and what repeats."""
