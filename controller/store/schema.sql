-- The schema as the migrations leave it; for reading. A test holds it equal to them.

CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    at       TEXT NOT NULL,
    entity   TEXT NOT NULL,
    id       TEXT NOT NULL,
    what     TEXT NOT NULL,
    actor    TEXT NOT NULL,
    detail   TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;

CREATE INDEX audit_by_id ON audit (id, sequence);

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    topic      TEXT NOT NULL CHECK (topic IN ('job', 'event')),
    subject    TEXT NOT NULL,
    dedupe_id  TEXT,
    job_id     TEXT,
    payload    BLOB NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE nodes (
    name           TEXT PRIMARY KEY CHECK (name GLOB '[a-z]*' AND length(name) <= 24),
    enabled        INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    lab_eligible   INTEGER NOT NULL DEFAULT 1 CHECK (lab_eligible IN (0, 1)),
    boot_id        TEXT,
    boot_at        TEXT,
    last_seen_at   TEXT,
    environment_id TEXT REFERENCES environments (id),
    inventory      TEXT CHECK (inventory IS NULL OR json_valid(inventory)),
    created_at     TEXT NOT NULL
) STRICT;

CREATE TABLE dead_boots (
    node    TEXT NOT NULL REFERENCES nodes (name),
    boot_id TEXT NOT NULL,
    at      TEXT NOT NULL,
    PRIMARY KEY (node, boot_id)
) STRICT;

CREATE TABLE environments (
    id         TEXT PRIMARY KEY CHECK (id GLOB 'sha256:*'),
    body       TEXT NOT NULL CHECK (json_valid(body)),
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE artifact_sets (
    digest     TEXT PRIMARY KEY CHECK (digest GLOB 'sha256:*'),
    manifest   TEXT NOT NULL CHECK (json_valid(manifest)),
    evidence   TEXT NOT NULL CHECK (json_valid(evidence)),
    file_count INTEGER NOT NULL CHECK (file_count > 0),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    created_at TEXT NOT NULL
) STRICT;

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

CREATE INDEX set_locations_by_set ON set_locations (set_digest);

CREATE TABLE profiles (
    id         TEXT PRIMARY KEY CHECK (id GLOB 'sha256:*'),
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    body       TEXT NOT NULL CHECK (json_valid(body)),
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (name, version)
) STRICT;

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

CREATE INDEX assessments_by_set ON assessments (set_digest, created_at);

CREATE INDEX assessments_by_time ON assessments (created_at DESC, id);

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

CREATE UNIQUE INDEX approvals_valid ON approvals (set_digest, purpose) WHERE revoked_at IS NULL;

CREATE TABLE jobs (
    id               TEXT PRIMARY KEY,
    request_id       TEXT NOT NULL UNIQUE,
    type             TEXT NOT NULL CHECK (type IN ('scan', 'probe')),
    node             TEXT NOT NULL REFERENCES nodes (name),
    lane             TEXT NOT NULL CHECK (lane IN ('work', 'control', 'invoke')),
    state            TEXT NOT NULL
        CHECK (state IN ('queued', 'leased', 'succeeded', 'failed', 'cancelled', 'expired')),
    payload          TEXT NOT NULL CHECK (json_valid(payload)),
    attempt_count    INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    max_attempts     INTEGER NOT NULL CHECK (max_attempts > 0),
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    stream_sequence  INTEGER,
    queued_by        TEXT NOT NULL,
    queued_at        TEXT NOT NULL,
    deadline_at      TEXT NOT NULL,
    finished_at      TEXT,
    failure          TEXT CHECK (failure IS NULL OR json_valid(failure)),
    CHECK (attempt_count <= max_attempts),
    CHECK ((finished_at IS NULL) = (state IN ('queued', 'leased')))
) STRICT;

CREATE INDEX jobs_open ON jobs (node, lane) WHERE state IN ('queued', 'leased');

CREATE INDEX jobs_unsettled ON jobs (finished_at)
    WHERE stream_sequence IS NOT NULL AND state NOT IN ('queued', 'leased');

CREATE TABLE leases (
    id            TEXT PRIMARY KEY,
    job_id        TEXT NOT NULL REFERENCES jobs (id),
    node          TEXT NOT NULL REFERENCES nodes (name),
    boot_id       TEXT NOT NULL,
    attempt       INTEGER NOT NULL CHECK (attempt > 0),
    token_sha256  TEXT NOT NULL UNIQUE CHECK (length(token_sha256) = 64),
    state         TEXT NOT NULL CHECK (state IN ('active', 'released', 'expired', 'fenced')),
    delivery      TEXT NOT NULL,
    last_sequence INTEGER NOT NULL DEFAULT 0,
    claimed_at    TEXT NOT NULL,
    expires_at    TEXT NOT NULL,
    ended_at      TEXT,
    UNIQUE (job_id, attempt),
    CHECK ((ended_at IS NULL) = (state = 'active'))
) STRICT;

CREATE UNIQUE INDEX leases_active ON leases (job_id) WHERE state = 'active';

CREATE TABLE scans (
    id         TEXT PRIMARY KEY REFERENCES jobs (id),
    path       TEXT NOT NULL,
    set_digest TEXT REFERENCES artifact_sets (digest)
) STRICT;

CREATE TABLE probes (
    id            TEXT PRIMARY KEY REFERENCES jobs (id),
    assessment_id TEXT NOT NULL REFERENCES assessments (id),
    approval_id   TEXT NOT NULL REFERENCES approvals (id),
    set_digest    TEXT NOT NULL REFERENCES artifact_sets (digest),
    profile_id    TEXT NOT NULL REFERENCES profiles (id),
    node          TEXT NOT NULL REFERENCES nodes (name),
    location      TEXT NOT NULL,
    start_method  TEXT NOT NULL CHECK (start_method IN ('template', 'fresh')),
    state         TEXT NOT NULL CHECK (state IN
        ('queued', 'preparing', 'loading', 'healthchecking', 'ready', 'unloading',
         'completed', 'failed', 'cancelled')),
    state_at      TEXT NOT NULL,
    timeline      TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(timeline)),
    evidence      TEXT CHECK (evidence IS NULL OR json_valid(evidence))
) STRICT;

CREATE TABLE probe_logs (
    probe_id      TEXT NOT NULL REFERENCES probes (id),
    attempt       INTEGER NOT NULL CHECK (attempt > 0),
    ref           TEXT NOT NULL,
    body          TEXT NOT NULL,
    dropped_bytes INTEGER NOT NULL CHECK (dropped_bytes >= 0),
    at            TEXT NOT NULL,
    PRIMARY KEY (probe_id, attempt)
) STRICT;

CREATE TABLE candidates (
    id             TEXT PRIMARY KEY,
    probe_id       TEXT NOT NULL UNIQUE REFERENCES probes (id),
    set_digest     TEXT NOT NULL REFERENCES artifact_sets (digest),
    profile_id     TEXT NOT NULL REFERENCES profiles (id),
    node           TEXT NOT NULL REFERENCES nodes (name),
    environment_id TEXT NOT NULL REFERENCES environments (id),
    fingerprint    TEXT NOT NULL,
    status         TEXT NOT NULL DEFAULT 'lab_ready' CHECK (status = 'lab_ready'),
    production     INTEGER NOT NULL DEFAULT 0 CHECK (production = 0),
    created_at     TEXT NOT NULL
) STRICT;

CREATE TRIGGER candidates_immutable BEFORE UPDATE ON candidates
    BEGIN SELECT RAISE(ABORT, 'a candidate is immutable'); END;

CREATE TRIGGER candidates_only_from_completed BEFORE INSERT ON candidates
    WHEN (SELECT state FROM probes WHERE id = NEW.probe_id) IS NOT 'completed'
    BEGIN SELECT RAISE(ABORT, 'a candidate needs a completed probe'); END;

CREATE TABLE stream_marks (
    stream       TEXT PRIMARY KEY,
    max_sequence INTEGER NOT NULL CHECK (max_sequence >= 0)
) STRICT;

CREATE TRIGGER artifact_sets_immutable
    BEFORE UPDATE OF digest, manifest, file_count, size_bytes, created_at ON artifact_sets
    BEGIN SELECT RAISE(ABORT, 'an artifact set is immutable'); END;

CREATE TRIGGER profiles_immutable BEFORE UPDATE ON profiles
    BEGIN SELECT RAISE(ABORT, 'a profile is immutable'); END;

CREATE TRIGGER environments_immutable BEFORE UPDATE ON environments
    BEGIN SELECT RAISE(ABORT, 'an environment is immutable'); END;

CREATE TRIGGER assessments_immutable BEFORE UPDATE ON assessments
    BEGIN SELECT RAISE(ABORT, 'an assessment is immutable'); END;

CREATE TRIGGER approvals_immutable BEFORE UPDATE ON approvals
    WHEN OLD.revoked_at IS NOT NULL
        OR NEW.id IS NOT OLD.id OR NEW.set_digest IS NOT OLD.set_digest OR NEW.purpose IS NOT OLD.purpose
        OR NEW.approved_by IS NOT OLD.approved_by OR NEW.reason IS NOT OLD.reason
        OR NEW.approved_at IS NOT OLD.approved_at
    BEGIN SELECT RAISE(ABORT, 'an approval is immutable'); END;

CREATE TRIGGER approvals_kept BEFORE DELETE ON approvals
    BEGIN SELECT RAISE(ABORT, 'an approval is immutable'); END;

CREATE TRIGGER probes_gates_immutable
    BEFORE UPDATE OF id, assessment_id, approval_id, set_digest, profile_id, node, location, start_method ON probes
    BEGIN SELECT RAISE(ABORT, 'the gates of a probe are immutable'); END;

CREATE TRIGGER candidates_kept BEFORE DELETE ON candidates
    BEGIN SELECT RAISE(ABORT, 'a candidate is immutable'); END;

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

CREATE TABLE numbered_sets (
    number     INTEGER PRIMARY KEY,
    set_digest TEXT NOT NULL UNIQUE REFERENCES artifact_sets (digest)
) STRICT;

CREATE TABLE set_members (
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    number INTEGER NOT NULL REFERENCES numbered_sets (number),
    PRIMARY KEY (sha256, number)
) STRICT, WITHOUT ROWID;

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
