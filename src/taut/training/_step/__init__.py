"""One private gradient: clip, sum, add noise once, divide."""
