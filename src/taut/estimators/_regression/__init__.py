"""Linear regression: data in public units, methods that fit them, estimators around those."""
