"""What all estimators share: inputs that tell nothing, a promise, and a budget."""
