// Migration 16: an operator may give a VM another egress limit than the default.

export const egressLimits = `
ALTER TABLE vms ADD COLUMN egress_limit_bytes INTEGER;
`
