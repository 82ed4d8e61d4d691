"""Saved models and checkpoints: safetensors for the numbers, JSON for the rest, versioned and atomic."""
