"""Training: settings, the loop, steps, optimisers, reports."""
