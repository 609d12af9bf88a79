"""Passes: each makes a program that computes the same, faster."""
