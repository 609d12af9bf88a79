"""Sizes of the attentions of `com.microsoft`."""
