"""Test doubles that ship with Windlass: crash points, and a local model server with scripted answers."""
