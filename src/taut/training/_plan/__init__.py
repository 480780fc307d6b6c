"""Everything that decides privacy, fixed before training."""
