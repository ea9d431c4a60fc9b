"""What a model does, made for looking at."""
