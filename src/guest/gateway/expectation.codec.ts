// The proof that the gateway must give before it gets a prompt, from the claim or from the owner. Pure; throws Fault
// invalid_request, naming the field.

import { encodePolicy } from '../../attest/policy/encode.ts'
import { strictPolicy } from '../../attest/policy/policy.ts'
import { fromHex, utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { checkedJson, OneOf } from '../../contract/check.ts'
import { Closed } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { AttestedGateway, InferenceGateway, type UnattestedGateway } from '../../contract/vm/inference-gateway.ts'
import type { AttestedFetchOptions } from '../../verifier/fetch/options.ts'

/** Limit of either document. */
export const expectationBytesMax = 64 * 1024

/** The claim's requirements, for the endpoint and strongroom-verify. Only root writes it. Not secret. */
export const GatewaySettings = Closed({
  baseUrl: Type.String({ minLength: 1, maxLength: 512 }),
  gateway: InferenceGateway,
  /** Source of this VM's own reports: a VM with hardware accepts no simulated platform. */
  platform: OneOf(['snp', 'none']),
})
export type GatewaySettings = Static<typeof GatewaySettings>

export type Expectation = {
  /** Author of the expectation. */
  readonly by: 'claim' | 'owner'
  /** Address with path; https if the gateway is attested. */
  readonly baseUrl: URL
  readonly gateway: AttestedGateway | UnattestedGateway
}

export type AttestedExpectation = Expectation & { readonly gateway: AttestedGateway }

/** Null if this instance has no gateway. `own`: the owner's document or null. */
export function expectationOf(settings: string, own: string | null): Expectation | null {
  const { baseUrl, gateway, platform } = readSettings(settings)
  if (gateway.kind === 'none') return null
  const by = own === null ? 'claim' : 'owner'
  const expectation: Expectation = {
    by,
    baseUrl: new URL(baseUrl),
    gateway: own === null ? gateway : readOwnGateway(own, platform),
  }
  const problem = gatewayProblem(expectation.gateway, { baseUrl, platform })
  if (problem !== null) throw new Fault('invalid_request', `the gateway that ${whose[by]} names: ${problem}`)
  return expectation
}

const whose = { claim: 'the claim', owner: 'your policy' } as const

export function readSettings(text: string): GatewaySettings {
  return checkedJson(GatewaySettings, utf8(text), { what: 'the gateway of the claim', code: 'invalid_request' })
}

/** The owner's file: the launch that the gateway must prove, as strict as a claim of kind `attested`. */
export function readOwnGateway(text: string, platform: GatewaySettings['platform']): AttestedGateway {
  const gateway = checkedJson(AttestedGateway, utf8(text), { what: 'your policy', code: 'invalid_request' })
  const problem = gatewayProblem(gateway, { baseUrl: null, platform })
  if (problem !== null) throw new Fault('invalid_request', `your policy: ${problem}`)
  return gateway
}

type Surroundings = {
  /** Null if not checked. */
  readonly baseUrl: string | null
  readonly platform: GatewaySettings['platform']
}

/** Checks beyond the schema: the first wrong field, or null. */
export function gatewayProblem(
  gateway: AttestedGateway | UnattestedGateway,
  { baseUrl, platform }: Surroundings,
): string | null {
  if (gateway.kind === 'unattested') {
    return gateway.ca === null || PEM_CERTIFICATES.test(gateway.ca) ? null : 'ca: not PEM certificates'
  }
  const { simulatedRoot, operatorKey, workloads } = gateway
  if (baseUrl !== null && !baseUrl.startsWith('https://')) return 'kind: attested, and baseUrl is not https'
  if (operatorKey === null && workloads === undefined) return 'operatorKey: null, and there are no workloads'
  if (operatorKey !== null && /^0*$/.test(operatorKey))
    return 'operatorKey: zeros, as every guest without an ID block reports'
  if (simulatedRoot === null) return null
  if (platform === 'snp') return 'simulatedRoot: this VM has a report device'
  return PEM_CERTIFICATES.test(simulatedRoot) ? null : 'simulatedRoot: not PEM certificates'
}

const PEM_CERTIFICATES = /^(-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n*)+$/

/**
 * Options for `attestedFetch`. Always: no debug, no migration, VMPL 0, the TCB of AMD's bulletins and a revocation
 * list. The documents add only values that must be equal, and a simulated root if this VM has no hardware either.
 */
export function attestedOptions({ baseUrl, gateway }: AttestedExpectation): AttestedFetchOptions {
  const { measurements, operatorKey, outside, workloads, allow, simulatedRoot } = gateway
  const idKeyDigest = operatorKey === null ? ('any' as const) : decodeHex(operatorKey)
  const policy = { ...strictPolicy(), measurements: measurements.map(decodeHex), idKeyDigest }
  return {
    url: baseUrl.origin,
    policy: encodePolicy(policy),
    outside,
    ...(workloads === undefined ? {} : { workloads }),
    ...(allow === undefined ? {} : { allow }),
    // The attested key decides; the certificate's issuer adds nothing.
    ca: 'any',
    evidenceTimeoutMs,
    ...(simulatedRoot === null ? {} : { simulatedRoot }),
  }
}

/** The gateway requests five reports of its platform, and may have to wait. */
const evidenceTimeoutMs = 60_000

function decodeHex(hex: string): Uint8Array {
  const bytes = fromHex(hex)
  if (bytes === null) throw new Fault('internal', 'invariant broken: the schema lets hexadecimal through alone')
  return bytes
}

export function isAttested(expectation: Expectation): expectation is AttestedExpectation {
  return expectation.gateway.kind === 'attested'
}
