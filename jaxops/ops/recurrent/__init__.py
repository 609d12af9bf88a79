"""Operators of the standard's family `rnn`; a package of that name would hide the operator RNN."""
