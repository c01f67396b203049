// The fleet in the admin interface, and what each host reports of itself to the others. Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const TextOrNull = OrNull(Type.String())
const NumberOrNull = OrNull(Type.Integer())

const AddressPair = Closed({ v4: TextOrNull, v6: TextOrNull })

/**
 * Where clients reach a host's services, by the labels of the domain; null if it does not serve it, or the address is
 * unknown.
 */
export const ServiceAddresses = Closed({
  ns: OrNull(AddressPair),
  instances: OrNull(AddressPair),
  inference: OrNull(AddressPair),
  builds: OrNull(AddressPair),
})
export type ServiceAddresses = Static<typeof ServiceAddresses>

/** Sent with each renewal. Hosts of other releases send other fields: a reader checks each field. */
export const HostReport = Closed({
  version: Type.String(),
  /** Newest schema of the directory that the host supports. */
  schema: Type.Integer(),
  /** Version of the directory that its copy has. Absent in reports of earlier releases. */
  copied_version: Type.Optional(Type.Integer({ minimum: 0 })),
  /** The host's wall clock when it sent this. */
  now_ms: Type.Integer(),
  domain: Type.String(),
  /** Why it takes no further instance now; null if it does. */
  lacking: TextOrNull,
  warm: Type.Integer(),
  memory_mib_used: NumberOrNull,
  memory_mib_total: Type.Integer(),
  vcpus_used: NumberOrNull,
  vcpus_total: Type.Integer(),
  /** Launch image of instances: the digest of its manifest; null if there is none. */
  image: TextOrNull,
  /** SHA-384 of its operator key, as ID_KEY_DIGEST in reports, in hexadecimal. */
  operator_key: Type.String(),
  /** CHIP_ID in its reports, in hexadecimal. Absent before the first report, and in reports of earlier releases. */
  chip_id: Type.Optional(Type.String()),
  addresses: ServiceAddresses,
})
export type HostReport = Static<typeof HostReport>

export const FleetHost = Closed({
  id: Type.String(),
  name: Type.String(),
  /** `lost`: its instances were given up. `silent`: it has no lease. `new`: it has never come. */
  state: OneOf(['serving', 'draining', 'silent', 'lost', 'new']),
  is_this_host: Type.Boolean(),
  role: Type.String(),
  joined_at: Type.String(),
  draining_since: TextOrNull,
  last_seen_at: TextOrNull,
  platform: TextOrNull,
  places_free: Type.Integer(),
  /** Instances that are not terminated. */
  instances: Type.Integer(),
  version: TextOrNull,
  schema: NumberOrNull,
  /** Offset of the host's wall clock from the database's. */
  clock_ahead_ms: NumberOrNull,
  warm: NumberOrNull,
  memory_mib_used: NumberOrNull,
  memory_mib_total: NumberOrNull,
  vcpus_used: NumberOrNull,
  vcpus_total: NumberOrNull,
  lacking: TextOrNull,
  image: TextOrNull,
  /** SHA-384 of its operator key, in hexadecimal. */
  operator_key: TextOrNull,
  /** CHIP_ID in its reports, in hexadecimal, as the host states it. */
  chip_id: Type.Optional(TextOrNull),
  domain: TextOrNull,
  /** Where it answers other hosts; null if it does not. */
  peer_address: TextOrNull,
  /** SHA-256 of the key by which it does, as SubjectPublicKeyInfo, in hexadecimal; null if it has published none. */
  peer_key: TextOrNull,
  /** Whether the answering host has reached it; null if it has not tried. */
  is_reached: OrNull(Type.Boolean()),
  /** Why not. */
  peer_problem: TextOrNull,
})
export type FleetHost = Static<typeof FleetHost>
export type FleetHostState = FleetHost['state']

export const FleetHosts = Closed({ hosts: Type.Array(FleetHost) })
export type FleetHosts = Static<typeof FleetHosts>

/** This host's own part in the fleet. */
export const FleetStatus = Closed({
  /** Without its password. */
  database: Type.String(),
  name: Type.String(),
  is_reachable: Type.Boolean(),
  since: Type.String(),
  problem: TextOrNull,
  /** Without a lease this host starts nothing new. */
  has_lease: Type.Boolean(),
  is_draining: Type.Boolean(),
  epoch: NumberOrNull,
  /** Where it answers other hosts; null if it does not. */
  peer_address: TextOrNull,
  /** Other hosts that answer, as this one has reached them last. */
  peers: Type.Array(Closed({ name: Type.String(), is_reached: Type.Boolean(), problem: TextOrNull })),
})
export type FleetStatus = Static<typeof FleetStatus>

const ChipId = Type.String({ pattern: '^[0-9a-f]{128}$' })

/** Bounded by the size of a request; a fleet has fewer hosts. No share: a request of the operator's. */
const chipsMax = 400

export const AdminChipsAsk = Closed({
  /** Chips that the operator has compared, as by `--add`. */
  add: Type.Array(ChipId, { maxItems: chipsMax }),
  /** Chips of the list before, and of `add`: others are refused. Absent without `--previous`. */
  known: Type.Optional(Type.Array(ChipId, { maxItems: chipsMax })),
})
export type AdminChipsAsk = Static<typeof AdminChipsAsk>

/** The signed list of the chips of a host, or of its fleet, and its entry in the log. */
export const AdminChips = Closed({
  /** The file for relying parties (attest/policy/chip-list.ts). */
  list: Type.String(),
  /** SHA-256 of the list, as the transparency log has it. */
  sha256: Type.String(),
  /** `chip_id`: null before the host's first report, or for another operator key; the list then lacks the host. */
  hosts: Type.Array(Closed({ host: Type.String(), chip_id: OrNull(Type.String()) })),
})
export type AdminChips = Static<typeof AdminChips>
