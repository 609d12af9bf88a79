"""Searches for the likeliest tokens, which run a decoder in a loop."""
