"""Statistics as values, the noise that they need together, and what is released of them."""
