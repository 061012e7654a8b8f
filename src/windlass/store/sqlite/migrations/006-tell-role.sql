-- Whom a person's message is for: a role, or '' for whoever writes code.
ALTER TABLE told ADD COLUMN role TEXT NOT NULL DEFAULT '';
