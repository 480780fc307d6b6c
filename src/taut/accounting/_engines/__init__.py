"""A sum of pairs in, certified numbers out; no mechanism and no JSON is known here."""
