// Migration 16: an operator may give a VM another egress limit than the default; what a VM's tap had taken when its egress was sampled.

export const egressLimits = `
ALTER TABLE vms ADD COLUMN egress_limit_bytes INTEGER;
ALTER TABLE egress ADD COLUMN tap_bytes INTEGER;
`
