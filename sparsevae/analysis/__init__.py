"""What can be asked of a fitted model."""
