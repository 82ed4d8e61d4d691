"""File formats of data sets."""
