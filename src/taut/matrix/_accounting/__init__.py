"""Privacy losses of encoded inputs, with and without a sampler."""
