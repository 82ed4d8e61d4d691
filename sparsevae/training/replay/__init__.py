"""A training step as one list of tensor operations, written down once and repeated."""
