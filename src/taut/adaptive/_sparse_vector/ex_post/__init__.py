"""Normal noise on queries of a known range: what was spent, as a function of the answers."""
