"""Which engine answers which question about a sum of releases."""
