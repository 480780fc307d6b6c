"""Planning: which encoder and which sampler have the least error at one promise."""
