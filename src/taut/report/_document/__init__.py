"""A document as blocks, and its HTML."""
