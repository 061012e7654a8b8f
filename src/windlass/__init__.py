"""Windlass drives coding agents from a request to reviewed, tested, landed code."""

__version__ = "0.1.0"
