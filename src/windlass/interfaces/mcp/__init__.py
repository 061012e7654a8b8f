"""`windlass mcp`: tools for an AI host. `tools` acts, `texts` renders, `server` speaks the protocol."""
