"""Functions that operators of several families share."""
