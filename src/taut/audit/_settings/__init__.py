"""Privacy settings of other tools: what they promise, and what they leave open."""
