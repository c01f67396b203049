// VMs, and the ledger of everything on the host that was made for one (architecture: state, desired and observed).

import { index, integer, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core'

export const VM_STATES = ['waiting', 'launching', 'booting', 'running', 'stopping', 'failed', 'gone'] as const

/** `world`: what instances reach. `fetch`: the fetch proxy of this host alone. `gateway`: the gateway's upstreams; the world reaches its service port. */
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
    /** What its QEMU runs on; null before there is one. */
    platform: text('platform', { enum: ['snp', 'kvm', 'tcg'] }),
    /** Since when the firewall is to let its traffic through; null: it has not proved what it is. Never taken back. */
    openedAtMs: integer('opened_at_ms'),
    /** Promised size of its scratch disk; 0 for none. */
    scratchGib: integer('scratch_gib').notNull().default(0),
    /** Promised size of the disk over which host and guest hand each other files; 0 for none. */
    exchangeGib: integer('exchange_gib').notNull().default(0),
    /** Since when the firewall drops everything of it, for good; null: not so. */
    closedAtMs: integer('closed_at_ms'),
    /** What it reaches once it is opened. */
    network: text('network', { enum: VM_NETWORKS }).notNull().default('world'),
    /** Canonical text of workload.json (contract/vm/workload.ts), whose SHA-256 is then the HOST_DATA of its launch; null for none. */
    workload: text('workload'),
    /** Path of a disk that it gets read-only; null for none. */
    modelDisk: text('model_disk'),
    /** What it may send in its life, where an operator has raised that; null: what every instance may. */
    egressLimitBytes: integer('egress_limit_bytes'),
    /** As `formatIpv6` writes it (base/ipv6.ts); null for none. */
    addressV6: text('address_v6'),
  },
  table => [index('vms_state').on(table.state)],
)

export type Vm = typeof vms.$inferSelect
export type VmState = Vm['state']

/** Written before the thing itself is made; removed after it is gone. Released in reverse order of `seq`. */
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
    /** What the host calls it: address, path, interface name, object suffix, user id, process identity. */
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

/** Addresses that a VM has given back, since when. Until they have rested no other VM gets them. */
export const restingAddresses = sqliteTable('resting_addresses', {
  address: text('address').primaryKey(),
  sinceMs: integer('since_ms').notNull(),
})

/** The newest sample of each VM: what the kernel's quota had used, from which a vanished table is restored. It goes with the VM. */
export const egress = sqliteTable('egress', {
  vmId: text('vm_id')
    .primaryKey()
    .references(() => vms.id, { onDelete: 'cascade' }),
  usedBytes: integer('used_bytes').notNull(),
  observedAtMs: integer('observed_at_ms').notNull(),
  blockedAtMs: integer('blocked_at_ms'),
  /** Of the allowance for answers to SSH, once the cap is spent. */
  rescueBytes: integer('rescue_bytes').notNull().default(0),
  /** What its tap had taken from it just before, whatever became of that: how much more a quota that is lost may have counted. */
  tapBytes: integer('tap_bytes'),
})

export type EgressRow = typeof egress.$inferSelect
export type EgressSample = Omit<EgressRow, 'tapBytes'>

/** What a VM was launched from, written before its QEMU is started. It goes with the VM. */
export const launches = sqliteTable('launches', {
  vmId: text('vm_id')
    .primaryKey()
    .references(() => vms.id, { onDelete: 'cascade' }),
  /** Text of the launch document (contract/vm/launch.ts). */
  document: text('document').notNull(),
  /** Launch digest, hexadecimal, as are the next two. */
  measurement: text('measurement').notNull(),
  /** SHA-256 of the workload where there is one, else of the document. */
  hostData: text('host_data').notNull(),
  /** SHA-384 of the ID key that signed the ID block. */
  operatorKey: text('operator_key').notNull(),
  launchedAtMs: integer('launched_at_ms').notNull(),
  /** Canonical text of workload.json; null for none. */
  workload: text('workload'),
})

export type Launch = typeof launches.$inferSelect
