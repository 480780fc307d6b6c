"""How the columns of a table come into memory, a piece at a time, one module per engine."""
