"""Sizes of the quantized operators of `com.microsoft`."""
