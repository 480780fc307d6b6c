"""The tools whose settings are read, one module each."""
