CREATE TABLE session (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    cwd TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    resume INTEGER NOT NULL,
    written INTEGER NOT NULL,
    model TEXT NOT NULL,
    forked_at INTEGER NOT NULL
) STRICT;
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX document_by_session ON document (session, last);
CREATE TABLE shard (key INTEGER PRIMARY KEY, first INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
CREATE TABLE figures (
    session INTEGER NOT NULL,
    quarter INTEGER NOT NULL,
    model TEXT NOT NULL,
    succeeded INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL, denied INTEGER NOT NULL,
    turns INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cost INTEGER NOT NULL,
    unpriced INTEGER NOT NULL, calls INTEGER NOT NULL, call_failures INTEGER NOT NULL,
    asked INTEGER NOT NULL, approved INTEGER NOT NULL, refused INTEGER NOT NULL,
    PRIMARY KEY (session, quarter, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE tool (
    session INTEGER NOT NULL,
    quarter INTEGER NOT NULL,
    name TEXT NOT NULL,
    calls INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    PRIMARY KEY (session, quarter, name)
) STRICT, WITHOUT ROWID;
