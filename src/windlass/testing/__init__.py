"""Doubles that ship: crash points, and a model server on loopback whose words are written down beforehand."""
