"""What noise sees of a set: outlines, objectives, scales of least error."""
