"""Variants of an experiment: trained one by one, and compared."""
