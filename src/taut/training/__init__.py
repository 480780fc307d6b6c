"""Private training with PyTorch: plan, sample, clip, add noise, step."""
