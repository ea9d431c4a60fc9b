"""Plans: whether a run fits on machines that are not here, how long it takes and what it costs."""
