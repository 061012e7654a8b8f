"""Turns events into text. Nothing here reads the environment or makes decisions."""
