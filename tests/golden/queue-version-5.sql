-- A queue as commit 9108318 wrote it: 1 failed, 2 comes after 1, 3 after 2, 4 was paused.
PRAGMA user_version = 5;
BEGIN TRANSACTION;
CREATE TABLE attempts(
  entry INTEGER NOT NULL REFERENCES entries(id), number INTEGER NOT NULL, started REAL NOT NULL, ended REAL,
  devices INTEGER NOT NULL, device_bytes INTEGER NOT NULL, host_bytes INTEGER NOT NULL, threads INTEGER NOT NULL,
  cards TEXT NOT NULL, peak_bytes INTEGER NOT NULL, outcome TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0,
  words TEXT NOT NULL DEFAULT '[]', environment TEXT NOT NULL DEFAULT '[]', fingerprint TEXT NOT NULL DEFAULT '',
  job TEXT NOT NULL DEFAULT '', card_peak_bytes INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(entry, number));
INSERT INTO "attempts" VALUES(1,1,1.7958393614722402096e+09,1.79583936161884593967e+09,0,0,1048576,1,'[]',6647808,'exit code 1',0,'["false"]','[]','/runs
devices 0
false
environment','',0);
CREATE TABLE entries(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, recipe INTEGER NOT NULL, words TEXT NOT NULL,
  environment TEXT NOT NULL, folder TEXT NOT NULL, devices INTEGER NOT NULL, device_bytes INTEGER NOT NULL,
  host_bytes INTEGER NOT NULL, threads INTEGER NOT NULL, seconds REAL NOT NULL, priority INTEGER NOT NULL,
  retries INTEGER NOT NULL, after TEXT NOT NULL, state INTEGER NOT NULL, stop_asked INTEGER NOT NULL,
  hold_asked INTEGER NOT NULL, submitted REAL NOT NULL, promised REAL, attempts INTEGER NOT NULL,
  note TEXT NOT NULL, output TEXT NOT NULL DEFAULT '', fingerprint TEXT NOT NULL DEFAULT '',
  variants TEXT NOT NULL DEFAULT '[]', smaller TEXT NOT NULL DEFAULT '[]');
INSERT INTO "entries" VALUES(1,'first',0,'["false"]','[]','/runs',0,0,1048576,1,0.0,0,2,'[]',5,0,0,1.79583936043608093265e+09,NULL,1,'exit code 1','','/runs
devices 0
false
environment','[]','[]');
INSERT INTO "entries" VALUES(2,'second',0,'["true"]','[]','/runs',0,0,1048576,1,0.0,0,2,'[1]',1,0,0,1.79583936055606698985e+09,NULL,0,'held: 1, which it comes after, is failed; it goes on with plimsoll queue retry 1','','/runs
devices 0
true
environment','[]','[]');
INSERT INTO "entries" VALUES(3,'third',0,'["true"]','[]','/runs',0,0,1048576,1,0.0,0,2,'[2]',1,0,0,1.79583936073370647426e+09,NULL,0,'held: 2, which it comes after, is held; plimsoll queue show 2 says why','','/runs
devices 0
true
environment','[]','[]');
INSERT INTO "entries" VALUES(4,'paused',0,'["true"]','[]','/runs',0,0,1048576,1,0.0,0,2,'[]',1,0,0,1.79583936086885023112e+09,NULL,0,'paused; it goes on with plimsoll queue resume 4','','/runs
devices 0
true
environment','[]','[]');
CREATE TABLE settings(name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE INDEX open_entries ON entries(state);
CREATE INDEX alike ON attempts(fingerprint);
COMMIT;
