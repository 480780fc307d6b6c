"""Replays: a program run twice, on neighbouring data, with everything frozen that it releases."""
