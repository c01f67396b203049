// Schema 30: an instance of a fleet that fails before it is ready is tried once more on another host; VMs that a host
// has to end because their instance is not its own any more. Empty on a single host.

export const attempts = {
  to: 30,
  sql: `
-- Counts the hosts that the instance was given to; host_id changes only with it.
ALTER TABLE instances ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;

-- VMs of this host whose instance has gone to another host, or was ended without this one. Kept until they are gone.
CREATE TABLE left_vms (
  vm_id TEXT PRIMARY KEY
) STRICT;
`,
}
