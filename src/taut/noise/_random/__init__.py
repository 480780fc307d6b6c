"""Random bits, and exact integer draws made of them."""
