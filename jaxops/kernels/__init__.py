"""Computations that have a different fastest form on each platform. No operators and no messages."""
