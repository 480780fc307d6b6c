"""Clusters: seeds from a noisy histogram of a noisy projection, then few steps of Lloyd's."""
