"""The sparse vector technique: many questions about a threshold, a price for the few that pass."""
