-- No event is ever deleted, so a plain rowid grows as well; AUTOINCREMENT rewrote one more page with each.
CREATE TABLE event_plain (
  seq  INTEGER PRIMARY KEY,
  run  TEXT NOT NULL,
  at   REAL NOT NULL,
  type TEXT NOT NULL,
  data TEXT NOT NULL,
  mark TEXT
);
INSERT INTO event_plain SELECT seq, run, at, type, data, mark FROM event;
DROP TABLE event;
ALTER TABLE event_plain RENAME TO event;
CREATE INDEX event_run ON event (run, seq);
CREATE UNIQUE INDEX event_mark ON event (run, mark) WHERE mark IS NOT NULL;
