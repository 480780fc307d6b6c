"""What public vectors tell: subspaces, blocks, clipping norms."""
