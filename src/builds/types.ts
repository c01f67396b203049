// Types shared by the parts of service C.

import type { BuildLimits, BuildOrder } from '../contract/vm/build-order.ts'
import type { VmMemory } from '../store/directory/organization.query.ts'

/** The caller. `organizationId` is null for a stranger, if no key is required. */
export type Caller = {
  readonly organizationId: string | null
  /** Used only in the log. */
  readonly slug: string | null
  /** The public part of the caller's key; null without a key. */
  readonly keyPrefix: string | null
}

/** The table `builds` of the configuration, in units of this service. Parts take this value, and pick what they use. */
export type BuildsSettings = {
  readonly concurrentMax: number
  readonly queueMax: number
  readonly perOrganizationMax: number
  readonly perDayMax: number
  readonly uploadsMax: number
  readonly reservedMs: number
  readonly retentionMs: number
  readonly resultBytesMax: number
  readonly exchangeBytes: number
  readonly eventBytesMax: number
  readonly fetchHosts: readonly string[]
  /** The mirror of Rust's distribution that a request may name; null if there is none. */
  readonly rustMirror: string | null
  /** Null if nothing may be fetched. A build gets the authorities and the mirror only if its request names them. */
  readonly fetch: BuildOrder['fetch']
  readonly limits: BuildLimits
  readonly builderId: string
} & VmMemory
