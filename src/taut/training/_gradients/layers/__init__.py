"""What each kind of layer leaves behind for the gradients of its parameters."""
