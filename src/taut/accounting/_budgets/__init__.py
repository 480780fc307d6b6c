"""Keeping a guarantee: calibrate one parameter, or filter releases chosen adaptively."""
