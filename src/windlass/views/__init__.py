"""Events in, text out: nothing here reads the world or decides anything."""
