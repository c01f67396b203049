// VMs, and the ledger of everything on the host that was made for one (architecture: state, desired and observed).

import { index, integer, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core'

export const VM_STATES = ['waiting', 'launching', 'booting', 'running', 'stopping', 'failed', 'gone'] as const

/** `world`: for instances. `fetch`: this host's fetch proxy alone. `gateway`: upstreams out, its service port in. */
const VM_NETWORKS = ['world', 'fetch', 'gateway'] as const
export type VmNetworkKind = (typeof VM_NETWORKS)[number]

export const vms = sqliteTable(
  'vms',
  {
    /** UUID; also QEMU's `-uuid`. */
    id: text('id').primaryKey(),
    hostId: text('host_id').notNull(),
    image: text('image').notNull(),
    desired: text('desired', { enum: ['running', 'gone'] }).notNull(),
    state: text('state', { enum: VM_STATES }).notNull(),
    vcpus: integer('vcpus').notNull(),
    memoryMib: integer('memory_mib').notNull(),
    address: text('address'),
    failureCode: text('failure_code'),
    failureMessage: text('failure_message'),
    createdAtMs: integer('created_at_ms').notNull(),
    changedAtMs: integer('changed_at_ms').notNull(),
    /** Platform of its QEMU; null before it starts. */
    platform: text('platform', { enum: ['snp', 'kvm', 'tcg'] }),
    /** When the firewall was opened for it; null if it is not attested yet. Final. */
    openedAtMs: integer('opened_at_ms'),
    /** Promised size of its scratch disk; 0 for none. */
    scratchGib: integer('scratch_gib').notNull().default(0),
    /** Promised size of the disk on which host and guest exchange files; 0 for none. */
    exchangeGib: integer('exchange_gib').notNull().default(0),
    /** When the firewall was closed for it, for good; null if it is not. */
    closedAtMs: integer('closed_at_ms'),
    /** The network it gets once it is opened. */
    network: text('network', { enum: VM_NETWORKS }).notNull().default('world'),
    /** Canonical text of workload.json (contract/vm/workload.ts); HOST_DATA is its SHA-256. Null if there is none. */
    workload: text('workload'),
    /** Path of a disk that the VM gets read-only; null if there is none. */
    modelDisk: text('model_disk'),
    /** The VM's lifetime egress limit if an operator raised it; null for the limit of every instance. */
    egressLimitBytes: integer('egress_limit_bytes'),
    /** Form of `formatIpv6` (base/ipv6.ts); null if there is none. */
    addressV6: text('address_v6'),
    /** PCI addresses of devices of this host that are assigned to the VM; null if there are none. */
    gpus: text('gpus', { mode: 'json' }).$type<readonly string[]>(),
  },
  table => [index('vms_state').on(table.state)],
)

export type Vm = typeof vms.$inferSelect
export type VmState = Vm['state']

/** Written before the resource is made, removed after it is gone. Released in reverse order of `seq`. */
export const resources = sqliteTable(
  'resources',
  {
    seq: integer('seq').primaryKey({ autoIncrement: true }),
    vmId: text('vm_id')
      .notNull()
      .references(() => vms.id),
    kind: text('kind', {
      enum: ['address', 'address_v6', 'directory', 'disk', 'tap', 'nft', 'uid', 'tpm', 'qemu'],
    }).notNull(),
    /** The resource's name on the host: address, path, interface name, object suffix, user id or process identity. */
    name: text('name').notNull(),
    createdAtMs: integer('created_at_ms').notNull(),
  },
  table => [
    uniqueIndex('resources_kind_name').on(table.kind, table.name),
    uniqueIndex('resources_vm_kind').on(table.vmId, table.kind),
  ],
)

export type Resource = typeof resources.$inferSelect
export type ResourceKind = Resource['kind']

/** Addresses that VMs gave back. No other VM gets them until they have rested. */
export const restingAddresses = sqliteTable('resting_addresses', {
  address: text('address').primaryKey(),
  sinceMs: integer('since_ms').notNull(),
})

/** The newest sample of each VM: the kernel quota's count, from which a lost table is restored. Deleted with the VM. */
export const egress = sqliteTable('egress', {
  vmId: text('vm_id')
    .primaryKey()
    .references(() => vms.id, { onDelete: 'cascade' }),
  usedBytes: integer('used_bytes').notNull(),
  observedAtMs: integer('observed_at_ms').notNull(),
  blockedAtMs: integer('blocked_at_ms'),
  /** Bytes used of the allowance for SSH after the cap is spent. */
  rescueBytes: integer('rescue_bytes').notNull().default(0),
  /** Bytes that its tap had received just before, blocked ones too: the most that a lost quota may have counted. */
  tapBytes: integer('tap_bytes'),
})

export type EgressRow = typeof egress.$inferSelect
export type EgressSample = Omit<EgressRow, 'tapBytes'>

/** The launch document of a VM, written before its QEMU starts. Deleted with the VM. */
export const launches = sqliteTable('launches', {
  vmId: text('vm_id')
    .primaryKey()
    .references(() => vms.id, { onDelete: 'cascade' }),
  /** Text of the launch document (contract/vm/launch.ts). */
  document: text('document').notNull(),
  /** Launch digest, hexadecimal, as are the next two. */
  measurement: text('measurement').notNull(),
  /** SHA-256 of the workload, or without one of the document. */
  hostData: text('host_data').notNull(),
  /** SHA-384 of the ID key that signed the ID block. */
  operatorKey: text('operator_key').notNull(),
  launchedAtMs: integer('launched_at_ms').notNull(),
  /** Canonical text of workload.json; null if there is none. */
  workload: text('workload'),
})

export type Launch = typeof launches.$inferSelect
