"""Train, decode and study the Transformer of Vaswani et al. 2017."""
