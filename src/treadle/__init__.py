"""treadle: an execution-first tile language and compiler."""
