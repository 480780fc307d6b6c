"""Examples that are computed apart from each other, with parameters of their own."""
