-- Who drives the run, so that the next driver can tell whether the one before it may still be alive.
ALTER TABLE run ADD COLUMN driver TEXT NOT NULL DEFAULT '';
