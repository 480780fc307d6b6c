"""A whole run: the trainer, the drop-in for an existing loop, and their state."""
