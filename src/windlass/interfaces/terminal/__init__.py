"""Faces for a terminal or a pipe."""
