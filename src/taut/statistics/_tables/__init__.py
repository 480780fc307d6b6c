"""From tables of any engine and public bounds to exact integers; no noise is drawn here."""
