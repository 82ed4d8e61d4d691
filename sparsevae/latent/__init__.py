"""Latent variable models: posteriors, priors, objectives and true bounds."""
