"""Display a run in a terminal or a pipe."""
