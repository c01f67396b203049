// Schema 34: how many records an organization has, so that a create need not count them; instances of one host by
// status.

export const recordCounts = {
  to: 34,
  sql: `
-- Kept by the triggers below: all records, and those that are not terminated.
ALTER TABLE organizations ADD COLUMN record_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE organizations ADD COLUMN living_count INTEGER NOT NULL DEFAULT 0;
UPDATE organizations SET
  record_count = (SELECT count(*) FROM instances WHERE organization_id = organizations.id),
  living_count = (SELECT count(*) FROM instances WHERE organization_id = organizations.id AND status <> 'terminated');

CREATE TRIGGER instances_counted AFTER INSERT ON instances BEGIN
  UPDATE organizations SET record_count = record_count + 1, living_count = living_count + (NEW.status <> 'terminated')
  WHERE id = NEW.organization_id;
END;
CREATE TRIGGER instances_moved AFTER UPDATE OF status ON instances
WHEN (OLD.status <> 'terminated') <> (NEW.status <> 'terminated') BEGIN
  UPDATE organizations
  SET living_count = living_count + (NEW.status <> 'terminated') - (OLD.status <> 'terminated')
  WHERE id = NEW.organization_id;
END;
CREATE TRIGGER instances_removed AFTER DELETE ON instances BEGIN
  UPDATE organizations SET record_count = record_count - 1, living_count = living_count - (OLD.status <> 'terminated')
  WHERE id = OLD.organization_id;
END;

DROP INDEX instances_status;
CREATE INDEX instances_status_host ON instances (status, host_id);
`,
}
