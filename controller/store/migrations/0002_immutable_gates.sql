-- What a gate has recorded is never rewritten: another content is another row (spec G1, G4). Code has no statement
-- that would; these triggers hold it for every other hand too.

CREATE TRIGGER artifact_sets_immutable
    BEFORE UPDATE OF digest, manifest, file_count, size_bytes, created_at ON artifact_sets
    BEGIN SELECT RAISE(ABORT, 'an artifact set is immutable'); END;

CREATE TRIGGER profiles_immutable BEFORE UPDATE ON profiles
    BEGIN SELECT RAISE(ABORT, 'a profile is immutable'); END;

CREATE TRIGGER environments_immutable BEFORE UPDATE ON environments
    BEGIN SELECT RAISE(ABORT, 'an environment is immutable'); END;

CREATE TRIGGER assessments_immutable BEFORE UPDATE ON assessments
    BEGIN SELECT RAISE(ABORT, 'an assessment is immutable'); END;

-- An approval is taken back once, and nothing else of it ever changes.
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
