"""What X and y are: kinds of data, rows, scaling, labels."""
