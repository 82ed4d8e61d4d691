"""Figures of a fitted model and of results of analyses, and HTML pages of them."""
