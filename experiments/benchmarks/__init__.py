"""Benchmarks: each is a ratio against a peer, measured in the same run."""
