"""Published statements, recomputed."""
