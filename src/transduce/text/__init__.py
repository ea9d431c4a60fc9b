"""Text: vocabularies and corpora."""
