"""Randomness: noise, draws, discrete choices and the gradients through them."""
