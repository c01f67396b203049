// Schema 32: builds that any host of a fleet may run: who has the source, how often a build changed hands, and which
// host has a reserved VM. On a single host these rows say what they always said.

export const buildHosts = {
  to: 32,
  sql: `
-- source_host_id: has source and events of a build; null: the host of its row. claims: counts changes of host_id.
ALTER TABLE builds ADD COLUMN source_host_id TEXT;
ALTER TABLE builds ADD COLUMN claims INTEGER NOT NULL DEFAULT 0;

-- Reserved build VMs as every host knows them. The row of its own host in build_vms decides.
CREATE TABLE build_reservations (
  vm_id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  organization_id TEXT REFERENCES organizations (id),
  expires_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO build_reservations
  SELECT vm_id, host_id, organization_id, expires_at_ms FROM build_vms
  WHERE kind = 'reserved' AND expires_at_ms IS NOT NULL;

CREATE TRIGGER build_vms_gone AFTER DELETE ON build_vms BEGIN
  DELETE FROM build_reservations WHERE vm_id = OLD.vm_id;
END;
`,
}
