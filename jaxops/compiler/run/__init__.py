"""Runs what the passes made: prepared weights, segments, programs in files."""
