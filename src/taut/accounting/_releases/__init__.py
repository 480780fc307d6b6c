"""What a release is, and how sampling wraps one."""
