"""Pure functions from sizes and attributes to sizes; they raise the errors about sizes and never see an array."""
