"""Speed and coding quality against peers, measured side by side in one run: `python -m benchmarks`."""
