"""`windlass mcp`: the waist as tools for an AI host. `hands` does, `words` tells, `server` speaks the protocol."""
