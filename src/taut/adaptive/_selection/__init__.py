"""Private selection: a space of settings, trials that stay secret, and one total loss."""
