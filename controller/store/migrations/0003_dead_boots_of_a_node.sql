-- A boot is dead for its own node only: else one node could bury another's by taking on its boot id and being
-- replaced itself.
ALTER TABLE dead_boots RENAME TO dead_boots_of_all;
CREATE TABLE dead_boots (
    node    TEXT NOT NULL REFERENCES nodes (name),
    boot_id TEXT NOT NULL,
    at      TEXT NOT NULL,
    PRIMARY KEY (node, boot_id)
) STRICT;
INSERT INTO dead_boots (node, boot_id, at) SELECT node, boot_id, at FROM dead_boots_of_all;
DROP TABLE dead_boots_of_all;
