"""Questions about losses: what runs cost, in which words, and how much noise they need."""
