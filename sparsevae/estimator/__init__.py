"""The scikit-learn interface of every model."""
