"""What of a run is on the disk: its directory, checkpoints, and the ledger of many processes."""
