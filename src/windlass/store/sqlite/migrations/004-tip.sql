-- What the engine put on a run's tip, oldest first; the last row is the tip. The ref in the engine's repository only
-- shows it. A run without rows is older than this table: see store/tips.py.
CREATE TABLE tip (
  seq INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  sha TEXT NOT NULL,
  key TEXT NOT NULL,                  -- the step that put it there, '' for the beginning of the run
  at  REAL NOT NULL
);
CREATE INDEX tip_run ON tip (run, seq);
