"""Linear models fitted one coefficient at a time, each step a sum of numbers with noise."""
