"""Fair comparisons and diagnostics; nothing here is a guarantee of its own."""
