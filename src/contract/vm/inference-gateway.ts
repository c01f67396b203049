// The gateway for an instance's prompts, as its claim names it and its attested statement repeats it. Pure.
//
// `attested`: the VM sends nothing before the gateway's own evidence verifies against exactly this. `unattested`:
// nothing attests the gateway, so its operator can read the prompts; an owner accepts that by name.

import { OneOf } from '../check.ts'
import { Closed, OrNull, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { Exposure } from './exposure.ts'

/** The launch that a gateway in a measured VM must prove, and the upstreams outside of that VM that it may have. */
export const AttestedGateway = Closed({
  kind: Type.Literal('attested'),
  /** Launch digests, SHA-384 in hexadecimal: the gateway has one of them. */
  measurements: Type.Array(Type.String({ pattern: '^[0-9a-f]{96}$' }), { minItems: 1, maxItems: 8 }),
  /** SHA-384 of the ID key of its launch (ID_KEY_DIGEST), in hexadecimal. Null for any; then `workloads` decides. */
  operatorKey: OrNull(Type.String({ pattern: '^[0-9a-f]{96}$' })),
  /** SHA-256 of each workload.json that it may have (HOST_DATA), in hexadecimal. Default: any of the operator's. */
  workloads: Type.Optional(Type.Array(Sha256, { minItems: 1, maxItems: 8, uniqueItems: true })),
  /** Upstreams outside of its VM, `NAME=ORIGIN` or `NAME`, byte-sorted: the only ones that workload.json may have. */
  outside: Type.Array(Type.String({ minLength: 1, maxLength: 640 }), { maxItems: 64, uniqueItems: true }),
  /** Settings of workload.json that show more to the host, or keep content, and that it may have. Default: none. */
  allow: Type.Optional(Type.Array(Exposure, { minItems: 1, maxItems: Exposure.anyOf.length, uniqueItems: true })),
  /** PEM of a simulated platform's root; null on hardware. A VM with its own report device refuses such a claim. */
  simulatedRoot: OrNull(Type.String({ minLength: 1, maxLength: 16_384 })),
})
export type AttestedGateway = Static<typeof AttestedGateway>

/**
 * Why nothing attests it. `host`: it runs in the host's own process (`inference.placement = "host"`). `no-worker`:
 * its VM has no worker, so that it has no evidence, and every prompt goes to an upstream outside. `elsewhere`:
 * `instances.inference_base_url` names it.
 */
export const UnattestedReason = OneOf(['host', 'no-worker', 'elsewhere'])
export type UnattestedReason = Static<typeof UnattestedReason>

export const UnattestedGateway = Closed({
  kind: Type.Literal('unattested'),
  why: UnattestedReason,
  /** PEM certificates of the authority that signed its certificate; null when it is publicly trusted. */
  ca: OrNull(Type.String({ minLength: 1, maxLength: 16_384 })),
})
export type UnattestedGateway = Static<typeof UnattestedGateway>

/** `none`: the instance has no gateway. */
export const InferenceGateway = Type.Union([AttestedGateway, UnattestedGateway, Closed({ kind: Type.Literal('none') })])
export type InferenceGateway = Static<typeof InferenceGateway>
