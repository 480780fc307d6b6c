"""Several processes: who they are, how they agree, how sums are added once."""
