"""Value plus ideal noise, rounded to a public grid without error."""
