"""What every room needs and no room owns: it imports nothing of taut but `errors`."""
