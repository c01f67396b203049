// Instances as their owners see them (contract 2.2), and the log of their state changes, from which hours are billed.

import { index, integer, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core'
import { INSTANCE_STATUSES } from '../../contract/http/instance.ts'
import { organizations } from './organization.table.ts'

export const instances = sqliteTable(
  'instances',
  {
    id: text('id').primaryKey(),
    hostId: text('host_id').notNull(),
    organizationId: text('organization_id')
      .notNull()
      .references(() => organizations.id),
    name: text('name').notNull(),
    hostname: text('hostname').notNull(),
    /** Written by handlers; the reconciler moves `status` towards it. */
    desired: text('desired', { enum: ['present', 'absent'] }).notNull(),
    status: text('status', { enum: INSTANCE_STATUSES }).notNull(),
    agent: text('agent').notNull(),
    publicKey: text('public_key').notNull(),
    inferenceMode: text('inference_mode').notNull(),
    inferenceModel: text('inference_model').notNull(),
    /**
     * The instance's VM on host `hostId`: drawn with the row, before the host makes the VM; null once the instance is
     * terminated. No foreign key, because VMs are in that host's ledger.
     */
    vmId: text('vm_id'),
    failureCode: text('failure_code'),
    failureMessage: text('failure_message'),
    terminatedReason: text('terminated_reason'),
    /** Copied from the host's ledger, because this record outlives the VM. */
    egressBytes: integer('egress_bytes').notNull().default(0),
    egressObservedAtMs: integer('egress_observed_at_ms'),
    egressBlockAppliedAtMs: integer('egress_block_applied_at_ms'),
    createdAtMs: integer('created_at_ms').notNull(),
    readyAtMs: integer('ready_at_ms'),
    terminatedAtMs: integer('terminated_at_ms'),
    changedAtMs: integer('changed_at_ms').notNull(),
    /** Platform of its VM; null in rows older than this column. */
    platform: text('platform', { enum: ['snp', 'kvm', 'tcg'] }),
    /** Counts the hosts that it was given to; `hostId` changes only with it. */
    attempt: integer('attempt').notNull().default(1),
    /** Canonical text of the egress policy of the create request; null without one. */
    egressPolicy: text('egress_policy'),
  },
  table => [
    uniqueIndex('instances_organization_name').on(table.organizationId, table.name),
    uniqueIndex('instances_hostname').on(table.hostname),
    index('instances_organization_created').on(table.organizationId, table.createdAtMs, table.id),
    index('instances_status_host').on(table.status, table.hostId),
    index('instances_vm').on(table.vmId),
  ],
)

export type Instance = typeof instances.$inferSelect
export type InstanceStatus = Instance['status']

export const instanceChanges = sqliteTable(
  'instance_changes',
  {
    id: integer('id').primaryKey({ autoIncrement: true }),
    instanceId: text('instance_id')
      .notNull()
      .references(() => instances.id, { onDelete: 'cascade' }),
    status: text('status', { enum: INSTANCE_STATUSES }).notNull(),
    atMs: integer('at_ms').notNull(),
  },
  table => [index('instance_changes_instance').on(table.instanceId, table.atMs)],
)

export type InstanceChange = typeof instanceChanges.$inferSelect
