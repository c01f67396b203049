// The fleet in the admin interface, and what each host reports of itself to the others. Pure.

import { type Static, Type } from '@sinclair/typebox'

const closed = { additionalProperties: false } as const
const NullableString = Type.Union([Type.String(), Type.Null()])
const NullableCount = Type.Union([Type.Integer(), Type.Null()])

/** Sent with each renewal. Hosts of other releases may send more. */
export const HostReport = Type.Object({
  version: Type.String(),
  /** Newest schema of the directory that it knows. */
  schema: Type.Integer(),
  /** Its wall clock when it sent this. */
  now_ms: Type.Integer(),
  domain: Type.String(),
  /** Why it takes no further instance now; null: it does. */
  lacking: NullableString,
  warm: Type.Integer(),
  memory_mib_used: NullableCount,
  memory_mib_total: Type.Integer(),
  vcpus_used: NullableCount,
  vcpus_total: Type.Integer(),
  /** Launch image of instances: the digest of its manifest; null: there is none. */
  image: NullableString,
})
export type HostReport = Static<typeof HostReport>

export const FleetHost = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    /** `lost`: its instances were given up. `silent`: it has no lease. `new`: it has never come. */
    state: Type.Union(['serving', 'draining', 'silent', 'lost', 'new'].map(state => Type.Literal(state))),
    is_this_host: Type.Boolean(),
    role: Type.String(),
    joined_at: Type.String(),
    draining_since: NullableString,
    last_seen_at: NullableString,
    platform: NullableString,
    places_free: Type.Integer(),
    /** Instances that are not terminated. */
    instances: Type.Integer(),
    version: NullableString,
    schema: NullableCount,
    /** Its wall clock against the database's. */
    clock_ahead_ms: NullableCount,
    warm: NullableCount,
    memory_mib_used: NullableCount,
    memory_mib_total: NullableCount,
    vcpus_used: NullableCount,
    vcpus_total: NullableCount,
    lacking: NullableString,
    image: NullableString,
    domain: NullableString,
  },
  closed,
)
export type FleetHost = Static<typeof FleetHost>
export type FleetHostState = FleetHost['state']

export const FleetHosts = Type.Object({ hosts: Type.Array(FleetHost) }, closed)
export type FleetHosts = Static<typeof FleetHosts>

/** This host's own part in the fleet. */
export const FleetStatus = Type.Object(
  {
    /** Without its password. */
    database: Type.String(),
    name: Type.String(),
    is_reachable: Type.Boolean(),
    since: Type.String(),
    problem: NullableString,
    /** Without a lease this host starts nothing new. */
    has_lease: Type.Boolean(),
    is_draining: Type.Boolean(),
    epoch: NullableCount,
  },
  closed,
)
export type FleetStatus = Static<typeof FleetStatus>
