"""One privacy loss in one direction: dominating pairs, their families, their discretisation."""
