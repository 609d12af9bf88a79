"""Sizes of the operators of family `training`."""
