"""Small helpers on tensors and batches; nothing of training below them."""
