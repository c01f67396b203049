// Attested builds as their owners see them, nonces of accepted builds, and build VMs without a build.

import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core'
import { BUILD_ERROR_TYPES, BUILD_STATES, type Waiver } from '../../contract/http/build.ts'
import { TOOLCHAINS, type ToolchainOptions } from '../../contract/http/build-options.ts'
import { organizations } from './organization.table.ts'

export const builds = sqliteTable(
  'builds',
  {
    /** The job id, a UUID. */
    id: text('id').primaryKey(),
    hostId: text('host_id').notNull(),
    /** Null for no owner, because no key is required. */
    organizationId: text('organization_id').references(() => organizations.id),
    state: text('state', { enum: BUILD_STATES }).notNull(),
    /** Lowercase hexadecimal. */
    nonce: text('nonce').notNull(),
    sourceKind: text('source_kind', { enum: ['archive', 'git'] }).notNull(),
    /** For an archive. */
    sourceName: text('source_name'),
    sourceBytes: integer('source_bytes'),
    sourceSha256: text('source_sha256'),
    /** For git. */
    repoUrl: text('repo_url'),
    repoRef: text('repo_ref'),
    projectDir: text('project_dir'),
    toolchain: text('toolchain', { enum: TOOLCHAINS }),
    reproduce: integer('reproduce', { mode: 'boolean' }).notNull(),
    /** Drawn when the build gets its VM; final, because a VM takes only one build. */
    vmId: text('vm_id'),
    /** State of the VM's network; `closed` is final. */
    network: text('network', { enum: ['unused', 'open', 'closed'] }).notNull(),
    /** JSON summary of its verified receipts; null before the first. */
    evidence: text('evidence'),
    simulated: integer('simulated', { mode: 'boolean' }),
    /** Launch digest of its VM, SHA-384 in hexadecimal, from its verified receipts. */
    measurement: text('measurement'),
    resultBytes: integer('result_bytes'),
    resultSha256: text('result_sha256'),
    provenanceSha256: text('provenance_sha256'),
    errorType: text('error_type', { enum: BUILD_ERROR_TYPES }),
    error: text('error'),
    /** Upper bound of the disk space of its files. */
    diskBytes: integer('disk_bytes').notNull(),
    createdAtMs: integer('created_at_ms').notNull(),
    startedAtMs: integer('started_at_ms'),
    /** Afterwards the exchange disk belongs to the guest. */
    orderedAtMs: integer('ordered_at_ms'),
    finishedAtMs: integer('finished_at_ms'),
    /** The build's VM is dismissed and its events are complete. */
    closedAtMs: integer('closed_at_ms'),
    /** When its result was deleted for space. */
    removedAtMs: integer('removed_at_ms'),
    /** The request's fetch settings: SHA-256 of the service's CA certificates, and the crates mirror. */
    fetchCaSha256: text('fetch_ca_sha256'),
    cratesMirror: text('crates_mirror'),
    /** The host that has its source and its events; null means `hostId`. */
    sourceHostId: text('source_host_id'),
    /** Counts changes of `hostId`: a build that waits is claimed by the host that runs it. */
    claims: integer('claims').notNull().default(0),
    /** Options of the request that belong to one toolchain. */
    options: text('options', { mode: 'json' }).$type<ToolchainOptions>(),
    /** Findings that the request waives; null in rows from before there were waivers. */
    waivers: text('waivers', { mode: 'json' }).$type<readonly Waiver[]>(),
  },
  table => [
    index('builds_state').on(table.state, table.createdAtMs),
    index('builds_organization').on(table.organizationId, table.createdAtMs),
    uniqueIndex('builds_vm').on(table.vmId),
  ],
)

export type Build = typeof builds.$inferSelect

export const buildNonces = sqliteTable(
  'build_nonces',
  {
    /** Id of an organization; '' for builds without owner. */
    owner: text('owner').notNull(),
    nonce: text('nonce').notNull(),
    buildId: text('build_id')
      .notNull()
      .references(() => builds.id, { onDelete: 'cascade' }),
  },
  table => [primaryKey({ columns: [table.owner, table.nonce] })],
)

/** Build VMs without a build. The transaction that starts a build deletes the row; a row exists before its VM. */
export const buildVms = sqliteTable(
  'build_vms',
  {
    vmId: text('vm_id').primaryKey(),
    hostId: text('host_id').notNull(),
    /** `warm`: without owner. `reserved`: for an organization. */
    kind: text('kind', { enum: ['warm', 'reserved'] }).notNull(),
    organizationId: text('organization_id').references(() => organizations.id),
    /** SHA-256 of the manifest of its image, in hexadecimal digits. */
    imageDigest: text('image_digest').notNull(),
    /** Everything else that decides whether a build can use it, as text. */
    shape: text('shape').notNull(),
    createdAtMs: integer('created_at_ms').notNull(),
    /** For a reserved VM. */
    expiresAtMs: integer('expires_at_ms'),
  },
  table => [index('build_vms_host').on(table.hostId, table.kind, table.createdAtMs)],
)

export type BuildVm = typeof buildVms.$inferSelect

/** Reserved build VMs of all hosts. The row goes with the one of its host in `buildVms`. */
export const buildReservations = sqliteTable('build_reservations', {
  vmId: text('vm_id').primaryKey(),
  hostId: text('host_id').notNull(),
  organizationId: text('organization_id').references(() => organizations.id),
  expiresAtMs: integer('expires_at_ms').notNull(),
})

export type BuildReservation = typeof buildReservations.$inferSelect
