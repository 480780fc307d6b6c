"""Principal components: from noisy second moments, or from a subspace behind its gap."""
