"""Runs a program of symbolic sizes on arrays that are larger, of which the rest takes no part."""
