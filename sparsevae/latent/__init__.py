"""Latent variable models: posteriors, priors, objectives and bounds on log p(x)."""
