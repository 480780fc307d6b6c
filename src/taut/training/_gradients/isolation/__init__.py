"""Whether examples are kept apart: a batch is run again in other company, and compared."""
