"""Posterior sampling of ridge regressions: its exact loss, and samples on a public grid."""
