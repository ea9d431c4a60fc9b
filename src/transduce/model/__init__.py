"""The Transformer: arrays in, arrays out."""
