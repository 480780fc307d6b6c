"""The privacy report: evidence, findings, sections, words."""
