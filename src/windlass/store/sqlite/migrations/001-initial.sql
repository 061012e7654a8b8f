-- One row per run: what was asked, with what, and where it stands.
CREATE TABLE run (
  id         TEXT PRIMARY KEY,
  request    TEXT NOT NULL,
  flow       TEXT NOT NULL,
  flow_text  TEXT NOT NULL,           -- editing the file does not change a run in flight
  slug       TEXT NOT NULL,
  date       TEXT NOT NULL,
  base       TEXT NOT NULL,
  branch     TEXT NOT NULL,
  settings   TEXT NOT NULL,           -- JSON, given up front
  options    TEXT NOT NULL,           -- JSON, how the run was started: agent, script, slots, detached ...
  state      TEXT NOT NULL,
  reason     TEXT NOT NULL DEFAULT '',
  hint       TEXT NOT NULL DEFAULT '',
  epoch      INTEGER NOT NULL DEFAULT 0,
  wanted     TEXT NOT NULL DEFAULT '', -- pause | abort, asked for by another process
  budget_usd REAL,
  warn_usd   REAL,
  parent     TEXT NOT NULL DEFAULT '',
  started_at REAL NOT NULL,
  updated_at REAL NOT NULL
);

-- Results only. No WITHOUT ROWID: rows are around 1 KB.
CREATE TABLE step (
  seq         INTEGER PRIMARY KEY,
  run         TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  inputs      TEXT NOT NULL,
  context     TEXT NOT NULL,
  result      TEXT NOT NULL,
  at          REAL NOT NULL,
  UNIQUE (run, key)
);

-- What an adopted change replaced; nothing is thrown away.
CREATE TABLE superseded (
  seq         INTEGER PRIMARY KEY,
  run         TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  inputs      TEXT NOT NULL,
  result      TEXT NOT NULL,
  adoption    INTEGER NOT NULL,
  at          REAL NOT NULL
);

-- Every try, written before its effect.
CREATE TABLE attempt (
  run        TEXT NOT NULL,
  key        TEXT NOT NULL,
  n          INTEGER NOT NULL,
  state      TEXT NOT NULL,           -- running | done | failed | interrupted
  epoch      INTEGER NOT NULL,
  host       TEXT NOT NULL,
  boot       TEXT NOT NULL,
  folder     TEXT NOT NULL,           -- relative to the run's folder
  slot       TEXT NOT NULL DEFAULT '',
  base       TEXT NOT NULL DEFAULT '',
  agent      TEXT NOT NULL DEFAULT '',
  model      TEXT NOT NULL DEFAULT '',
  role       TEXT NOT NULL DEFAULT '',
  credential TEXT NOT NULL DEFAULT '',
  reserved   REAL,
  wall_s     REAL,
  proc       TEXT NOT NULL DEFAULT '', -- JSON: supervisor and agent pid with start times
  session    TEXT NOT NULL DEFAULT '',
  started_at REAL NOT NULL,
  ended_at   REAL,
  error      TEXT NOT NULL DEFAULT '',
  reason     TEXT NOT NULL DEFAULT '',
  usage      TEXT NOT NULL DEFAULT '',
  cost_usd   REAL,
  PRIMARY KEY (run, key, n)
);

CREATE TABLE event (
  seq  INTEGER PRIMARY KEY AUTOINCREMENT,
  run  TEXT NOT NULL,
  at   REAL NOT NULL,
  type TEXT NOT NULL,
  data TEXT NOT NULL,
  mark TEXT                           -- a replay says everything again; what has its mark here is not recorded twice
);
CREATE INDEX event_run ON event (run, seq);
CREATE UNIQUE INDEX event_mark ON event (run, mark) WHERE mark IS NOT NULL;

CREATE TABLE question (
  run         TEXT NOT NULL,
  key         TEXT NOT NULL,
  id          TEXT NOT NULL,
  data        TEXT NOT NULL,          -- JSON of phases.base.Question
  state       TEXT NOT NULL,          -- pending | answered | withdrawn
  answer      TEXT NOT NULL DEFAULT '',
  comment     TEXT NOT NULL DEFAULT '',
  by          TEXT NOT NULL DEFAULT '',
  asked_at    REAL NOT NULL,
  answered_at REAL,
  PRIMARY KEY (run, key)
);

CREATE TABLE blob (
  sha     TEXT PRIMARY KEY,
  content BLOB NOT NULL
);

-- A person took over an edited artifact: the step that produced it now stands for this content.
CREATE TABLE adoption (
  id       INTEGER PRIMARY KEY,
  run      TEXT NOT NULL,
  artifact TEXT NOT NULL,
  producer TEXT NOT NULL,             -- the step's key
  old_sha  TEXT NOT NULL,
  new_sha  TEXT NOT NULL,
  covers   TEXT NOT NULL,             -- JSON list of keys that may run again
  by       TEXT NOT NULL,
  at       REAL NOT NULL
);

-- Quota and retry waits, one per credential, obeyed by every dispatch in the repository.
CREATE TABLE timer (
  credential TEXT PRIMARY KEY,
  until      REAL NOT NULL,
  since      REAL NOT NULL,
  reason     TEXT NOT NULL
);

CREATE TABLE checked (
  tree    TEXT NOT NULL,
  command TEXT NOT NULL,
  setup   TEXT NOT NULL,
  result  TEXT NOT NULL,
  at      REAL NOT NULL,
  PRIMARY KEY (tree, command, setup)
);
