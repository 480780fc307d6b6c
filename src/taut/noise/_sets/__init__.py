"""What one record can change: sensitivity sets, and projections onto them."""
