"""Encoders: the matrices that correlate noise, by their structure."""
