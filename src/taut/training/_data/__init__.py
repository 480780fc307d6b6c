"""From a dataset to checked batches and per-example losses."""
