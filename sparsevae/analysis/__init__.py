"""Analyses of a fitted model."""
