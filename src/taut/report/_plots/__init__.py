"""Pictures, one module per kind of result."""
