"""Sizes of the operators of family `rnn`."""
