"""What is done to one example's gradient, one strategy per module."""
