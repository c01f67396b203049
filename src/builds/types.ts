// Types that the parts of service C share.

import type { BuildLimits, BuildOrder } from '../contract/vm/build-order.ts'

/** The caller; organization null: a stranger, where no key is needed. */
export type Caller = {
  readonly organizationId: string | null
  /** Only logged. */
  readonly slug: string | null
  /** The public part of the key that was used; null without one. */
  readonly keyPrefix: string | null
}

/** The table `builds` of the configuration, in units of this service. Parts take this value, and name what they use. */
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
  /** The mirror of Rust's distribution that a request may name, or null. */
  readonly rustMirror: string | null
  /** Null if nothing may be fetched. A build gets the authorities and the mirror only if its request names them. */
  readonly fetch: BuildOrder['fetch']
  readonly limits: BuildLimits
  readonly builderId: string
}
