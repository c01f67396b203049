// The host's order to a build VM: everything that the host may say about a build. Pure.
//
// The guest puts the digest of the whole order into its first receipt and the order itself into the provenance, so
// that a client sees every word of it. `ORDER_FIELDS` of verifier/build/order.ts defines for each field how a
// verifier handles it.

import { canonicalJson } from '../../base/canonical-json.ts'
import { Closed, OrNull, Sha256 } from '../forms.ts'
import { BuildNonce, WAIVERS, Waiver } from '../http/build.ts'
import { Toolchain, ToolchainOptions } from '../http/build-options.ts'
import { type Static, Type } from '../type.ts'

const Count = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })
/** Mirror of the crates registry, `sparse+https://…/`. */
const Mirror = Type.String({ minLength: 1, maxLength: 512 })

/** Bounds of one build. Sizes in bytes, times in seconds. */
export const BuildLimits = Closed({
  sourceBytes: Count,
  sourceEntries: Count,
  fetchSeconds: Count,
  fetchBytes: Count,
  buildSeconds: Count,
  memoryBytes: Count,
  pids: Count,
  diskBytes: Count,
  /** Longest output of the build; more ends it. */
  logBytes: Count,
  artifactBytes: Count,
  artifactCount: Count,
})
export type BuildLimits = Static<typeof BuildLimits>

export const BuildOrder = Closed({
  /** UUID. */
  jobId: Type.String({ pattern: '^[0-9a-f-]{36}$' }),
  nonce: BuildNonce,
  source: Type.Union([
    Closed({
      kind: Type.Literal('archive'),
      name: OrNull(Type.String({ minLength: 1, maxLength: 128 })),
      sizeBytes: Count,
      sha256: Sha256,
    }),
    Closed({
      kind: Type.Literal('git'),
      url: Type.String({ minLength: 1, maxLength: 2048 }),
      ref: OrNull(Type.String({ minLength: 1, maxLength: 256 })),
    }),
  ]),
  projectDir: OrNull(Type.String({ minLength: 1, maxLength: 1024 })),
  toolchain: OrNull(Toolchain),
  reproduce: Type.Boolean(),
  options: OrNull(ToolchainOptions),
  /** Findings that the request waives. */
  waivers: Type.Array(Waiver, { maxItems: WAIVERS.length, uniqueItems: true }),
  /**
   * Origins beside public authorities and registries that the client's request accepts; the guest takes no others.
   */
  accepts: Closed({
    /** SHA-256 of the exact text of `fetch.ca`. */
    caSha256: OrNull(Sha256),
    /** The one that `fetch.cratesMirror` may be. */
    cratesMirror: OrNull(Mirror),
  }),
  /** URI of runDetails.builder.id. */
  builderId: Type.String({ minLength: 1, maxLength: 512 }),
  /** SHA-256 of the host's verification summary of the image; null without one. The guest passes it on, unchecked. */
  imageSummary: OrNull(Sha256),
  limits: BuildLimits,
  /** How the source and what its lock names are fetched; null if nothing may be fetched. */
  fetch: Type.Union([
    Closed({
      /**
       * HTTP CONNECT proxy on the host, `http://ADDRESS:PORT`; it lets through only hosts of the operator's list.
       */
      proxy: Type.String({ minLength: 1, maxLength: 128 }),
      /** Mirror that replaces the crates registry, `sparse+https://…/`; null means the registry that the lock names. */
      cratesMirror: OrNull(Mirror),
      /** PEM certificates trusted beside the public ones: of a mirror or git host of the operator's own. */
      ca: OrNull(Type.String({ minLength: 1, maxLength: 16_384 })),
    }),
    Type.Null(),
  ]),
})
export type BuildOrder = Static<typeof BuildOrder>

/** The canonical text (RFC 8785). Its SHA-256 stands in the receipt of the dispatch. */
export function orderText(order: BuildOrder): string {
  return canonicalJson(order)
}
