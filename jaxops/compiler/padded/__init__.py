"""Runs a program of symbolic sizes on arrays with room for more elements, of which surplus ones take no part."""
