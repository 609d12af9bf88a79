"""Sizes of the operators of com.microsoft."""
