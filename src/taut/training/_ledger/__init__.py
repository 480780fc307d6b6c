"""What was spent, durably: ledger, history, checkpoints, results."""
