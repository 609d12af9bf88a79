"""Runs a program of symbolic sizes on larger arrays, whose surplus elements do not affect the results."""
