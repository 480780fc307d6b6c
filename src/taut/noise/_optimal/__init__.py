"""The least noise of each family for a set, with its proof."""
