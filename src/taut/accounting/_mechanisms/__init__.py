"""One module per mechanism: its release and its public factory side by side."""
