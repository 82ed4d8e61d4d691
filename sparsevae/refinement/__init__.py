"""Better codes from a fitted model: what a unit brings, pursuit on a dictionary, inference per row."""
