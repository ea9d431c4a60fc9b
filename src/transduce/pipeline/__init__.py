"""From sentence pairs to batches on devices."""
