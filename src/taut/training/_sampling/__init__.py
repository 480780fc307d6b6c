"""Which examples, and which coordinates, a step looks at."""
