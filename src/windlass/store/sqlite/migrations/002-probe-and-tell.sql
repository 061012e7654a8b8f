-- After a quota wait one dispatch goes first; the others wait until it has shown that the quota is back.
ALTER TABLE timer ADD COLUMN probed_at REAL NOT NULL DEFAULT 0;

-- What a person said to a run while it was at work; it goes with the next dispatch, once.
CREATE TABLE told (
  seq  INTEGER PRIMARY KEY,
  run  TEXT NOT NULL,
  text TEXT NOT NULL,
  by   TEXT NOT NULL,
  at   REAL NOT NULL,
  key  TEXT NOT NULL DEFAULT ''        -- the dispatch that got it
);
