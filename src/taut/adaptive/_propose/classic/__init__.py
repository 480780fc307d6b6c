"""Classic tests: of local sensitivity, and of stability."""
