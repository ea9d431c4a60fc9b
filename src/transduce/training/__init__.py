"""The objective, the optimiser and the run."""
