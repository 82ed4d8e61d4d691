"""A training step as a list of tensor operations, recorded once and repeated."""
