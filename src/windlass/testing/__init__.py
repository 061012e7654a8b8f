"""Doubles that ship: crash points, and a model server on loopback whose words are written down beforehand."""

from windlass.testing.crash import crash_point

__all__ = ["crash_point"]
