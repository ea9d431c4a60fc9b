"""How good the output is."""
