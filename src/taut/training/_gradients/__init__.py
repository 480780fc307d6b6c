"""Per-example gradients of a model: the tape, the fallback, and their checks."""
