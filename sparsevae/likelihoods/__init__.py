"""Likelihoods p(x|z): a new kind of data is one file here."""
