"""What operators of several families share."""
