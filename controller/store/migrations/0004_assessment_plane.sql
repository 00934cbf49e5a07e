-- Assessment plane: versions of profiles, a third verdict, release from quarantine, corrupt places, expected manifests,
-- errors of estimates. SQLite cannot change a CHECK: such a table is copied aside, made anew and filled again. The
-- migration runs with foreign keys off and is checked as a whole before it is committed.

CREATE TEMP TABLE aside AS SELECT * FROM set_locations ORDER BY rowid;

DROP TABLE set_locations;

CREATE TABLE set_locations (
    node       TEXT NOT NULL REFERENCES nodes (name),
    path       TEXT NOT NULL,
    set_digest TEXT NOT NULL REFERENCES artifact_sets (digest),
    scan_id    TEXT NOT NULL,
    scanned_at TEXT NOT NULL,
    state      TEXT NOT NULL DEFAULT 'present' CHECK (state IN ('present', 'corrupt')),
    file       TEXT,
    problem    TEXT,
    found_at   TEXT,
    found_by   TEXT,
    PRIMARY KEY (node, path),
    CHECK ((state = 'corrupt') = (problem IS NOT NULL AND found_at IS NOT NULL AND found_by IS NOT NULL))
) STRICT;

INSERT INTO set_locations (node, path, set_digest, scan_id, scanned_at) SELECT node, path, set_digest, scan_id, scanned_at FROM aside ORDER BY rowid;

DROP TABLE temp.aside;

CREATE INDEX set_locations_by_set ON set_locations (set_digest);

CREATE TEMP TABLE aside AS SELECT * FROM profiles ORDER BY rowid;

DROP TABLE profiles;

CREATE TABLE profiles (
    id         TEXT PRIMARY KEY CHECK (id GLOB 'sha256:*'),
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    body       TEXT NOT NULL CHECK (json_valid(body)),
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (name, version)
) STRICT;

INSERT INTO profiles (id, name, version, body, created_by, created_at) SELECT id, name, 1, body, created_by, created_at FROM aside ORDER BY rowid;

DROP TABLE temp.aside;

CREATE TRIGGER profiles_immutable BEFORE UPDATE ON profiles
    BEGIN SELECT RAISE(ABORT, 'a profile is immutable'); END;

CREATE TEMP TABLE aside AS SELECT * FROM assessments ORDER BY rowid;

DROP TABLE assessments;

CREATE TABLE assessments (
    id             TEXT PRIMARY KEY,
    set_digest     TEXT NOT NULL REFERENCES artifact_sets (digest),
    profile_id     TEXT NOT NULL REFERENCES profiles (id),
    node           TEXT NOT NULL REFERENCES nodes (name),
    environment_id TEXT NOT NULL REFERENCES environments (id),
    fingerprint    TEXT NOT NULL CHECK (fingerprint GLOB 'sha256:*'),
    verdict        TEXT NOT NULL CHECK (verdict IN ('compatible', 'requires_probe', 'blocked')),
    body           TEXT NOT NULL CHECK (json_valid(body)),
    created_by     TEXT NOT NULL,
    created_at     TEXT NOT NULL
) STRICT;

INSERT INTO assessments (id, set_digest, profile_id, node, environment_id, fingerprint, verdict, body, created_by, created_at) SELECT id, set_digest, profile_id, node, environment_id, fingerprint, verdict, body, created_by, created_at FROM aside ORDER BY rowid;

DROP TABLE temp.aside;

CREATE INDEX assessments_by_set ON assessments (set_digest, created_at);

CREATE INDEX assessments_by_time ON assessments (created_at DESC, id);

CREATE TRIGGER assessments_immutable BEFORE UPDATE ON assessments
    BEGIN SELECT RAISE(ABORT, 'an assessment is immutable'); END;

CREATE TEMP TABLE aside AS SELECT * FROM approvals ORDER BY rowid;

DROP TABLE approvals;

CREATE TABLE approvals (
    id            TEXT PRIMARY KEY,
    set_digest    TEXT NOT NULL REFERENCES artifact_sets (digest),
    purpose       TEXT NOT NULL CHECK (purpose IN ('lab_execution', 'pickle', 'production', 'quarantine_release')),
    approved_by   TEXT NOT NULL,
    reason        TEXT NOT NULL CHECK (length(reason) > 0),
    approved_at   TEXT NOT NULL,
    revoked_by    TEXT,
    revoked_at    TEXT,
    revoke_reason TEXT,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT;

INSERT INTO approvals (id, set_digest, purpose, approved_by, reason, approved_at, revoked_by, revoked_at, revoke_reason) SELECT id, set_digest, purpose, approved_by, reason, approved_at, revoked_by, revoked_at, revoke_reason FROM aside ORDER BY rowid;

DROP TABLE temp.aside;

CREATE UNIQUE INDEX approvals_valid ON approvals (set_digest, purpose) WHERE revoked_at IS NULL;

CREATE TRIGGER approvals_immutable BEFORE UPDATE ON approvals
    WHEN OLD.revoked_at IS NOT NULL
        OR NEW.id IS NOT OLD.id OR NEW.set_digest IS NOT OLD.set_digest OR NEW.purpose IS NOT OLD.purpose
        OR NEW.approved_by IS NOT OLD.approved_by OR NEW.reason IS NOT OLD.reason
        OR NEW.approved_at IS NOT OLD.approved_at
    BEGIN SELECT RAISE(ABORT, 'an approval is immutable'); END;

CREATE TRIGGER approvals_kept BEFORE DELETE ON approvals
    BEGIN SELECT RAISE(ABORT, 'an approval is immutable'); END;

CREATE TABLE quarantines (
    id             TEXT PRIMARY KEY,
    sha256         TEXT NOT NULL UNIQUE CHECK (length(sha256) = 64),
    set_digest     TEXT NOT NULL REFERENCES artifact_sets (digest),
    path           TEXT NOT NULL,
    reason         TEXT NOT NULL CHECK (length(reason) > 0),
    quarantined_by TEXT NOT NULL,
    quarantined_at TEXT NOT NULL
) STRICT;

CREATE TRIGGER quarantines_immutable BEFORE UPDATE ON quarantines
    BEGIN SELECT RAISE(ABORT, 'a quarantine is immutable'); END;

CREATE TRIGGER quarantines_kept BEFORE DELETE ON quarantines
    BEGIN SELECT RAISE(ABORT, 'a quarantine is immutable'); END;

CREATE TABLE quarantined_members (
    set_digest TEXT NOT NULL REFERENCES artifact_sets (digest),
    sha256     TEXT NOT NULL REFERENCES quarantines (sha256),
    PRIMARY KEY (set_digest, sha256)
) STRICT, WITHOUT ROWID;

-- Which sets have certain bytes. Sets are numbered for it, as a digest in every row would make it two and a half times as large.
CREATE TABLE numbered_sets (
    number     INTEGER PRIMARY KEY,
    set_digest TEXT NOT NULL UNIQUE REFERENCES artifact_sets (digest)
) STRICT;

CREATE TABLE set_members (
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    number INTEGER NOT NULL REFERENCES numbered_sets (number),
    PRIMARY KEY (sha256, number)
) STRICT, WITHOUT ROWID;

INSERT INTO numbered_sets (set_digest) SELECT digest FROM artifact_sets ORDER BY rowid;

-- In the order of the new table's key, so that it grows at its end only.
INSERT INTO set_members (sha256, number)
SELECT DISTINCT unhex(json_extract(file.value, '$.sha256')), numbered.number
FROM artifact_sets s JOIN numbered_sets numbered ON numbered.set_digest = s.digest, json_each(s.manifest, '$.files') file
ORDER BY 1, 2;

CREATE TABLE scan_expectations (
    scan_id       TEXT PRIMARY KEY REFERENCES scans (id),
    kind          TEXT NOT NULL CHECK (kind IN ('sha256sum', 'openssf_signature')),
    source_sha256 TEXT NOT NULL CHECK (length(source_sha256) = 64),
    key           TEXT,
    entries       TEXT NOT NULL CHECK (json_valid(entries)),
    required_by   TEXT NOT NULL
) STRICT;

CREATE TABLE set_expectations (
    set_digest    TEXT NOT NULL REFERENCES artifact_sets (digest),
    source_sha256 TEXT NOT NULL CHECK (length(source_sha256) = 64),
    kind          TEXT NOT NULL CHECK (kind IN ('sha256sum', 'openssf_signature')),
    key           TEXT,
    required_by   TEXT NOT NULL,
    scan_id       TEXT NOT NULL,
    at            TEXT NOT NULL,
    PRIMARY KEY (set_digest, source_sha256)
) STRICT;

CREATE TABLE estimate_errors (
    probe_id        TEXT PRIMARY KEY REFERENCES probes (id),
    set_digest      TEXT NOT NULL,
    profile_id      TEXT NOT NULL,
    node            TEXT NOT NULL,
    adapter         TEXT NOT NULL,
    estimated_bytes INTEGER NOT NULL CHECK (estimated_bytes > 0),
    measured_bytes  INTEGER NOT NULL CHECK (measured_bytes > 0),
    source          TEXT NOT NULL,
    at              TEXT NOT NULL
) STRICT;

CREATE INDEX estimate_errors_by_adapter ON estimate_errors (adapter, node, at);

CREATE INDEX estimate_errors_by_set ON estimate_errors (set_digest, profile_id, at);

CREATE INDEX candidates_by_fingerprint ON candidates (fingerprint);
