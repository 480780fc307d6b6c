"""The noise of one step."""
