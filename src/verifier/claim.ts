// The claim document of an instance: its receipt attests it, and its gateway must be the one that the owner expects.
// Pure.
//
// The operator of the gateway can read the prompts. `attested` means that the VM itself sends none before the gateway's
// evidence verifies against this document, so an owner pins the document.

import { parsedJson } from '../attest/encoding/json.ts'
import { sha256 } from '../attest/hash.ts'
import { type Parsed, wellFormed } from '../attest/malformed.ts'
import { digestsOf } from '../attest/policy/id-keys.ts'
import type { Policy } from '../attest/policy/policy.ts'
import { isAllowed, readOutside } from '../attest/receipt/outside.ts'
import { checkNameOf, type Expected, exactly } from '../attest/receipt/verify.ts'
import { type Check, check, fail, notChecked, pass } from '../attest/verdict.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import { claimDocumentCharsMax } from '../contract/http/instance-attestation.ts'
import { ClaimDocument, type ClaimFields, claimFieldsOf, claimText } from '../contract/vm/claim-document.ts'
import { EXPOSURE_WORDS, type Exposure } from '../contract/vm/exposure.ts'
import type { AttestedGateway, UnattestedReason } from '../contract/vm/inference-gateway.ts'
import { ofForm } from './form.ts'
import { keyWords } from './pins.ts'

/** A finding that an owner may accept by name. `host-key`: the VM did not generate the key for its gateway requests. */
export type AllowedOfInstance = Exposure | typeof hostKeyName
export const hostKeyName = 'host-key'

/** The gateway that an owner expects in the claim. */
export type ExpectedGateway = {
  /**
   * Expected launch digests and operator key in the claim. 'any' skips the check, which requires waiving a pin
   * (pins.ts).
   */
  readonly policy: Pick<Policy, 'measurements' | 'idKeyDigest'> | 'any'
  /** SHA-256 of each workload.json that the claim may name. Absent to skip the check. */
  readonly workloads?: readonly Uint8Array[]
  /**
   * Names of accepted settings of the gateway, and `host-key` to accept a key that the VM did not generate. Default:
   * none.
   */
  readonly allow?: readonly AllowedOfInstance[]
  /** Upstreams outside of the gateway's VM that may receive prompts: `NAME`, or `NAME=ORIGIN`. */
  readonly outside: readonly string[]
  /** The only reason for which the gateway may be unattested, by name; 'none' requires attestation. */
  readonly unattested: UnattestedReason | 'none'
}

/** Expected receipt fields about the claim document. */
type ExpectedClaim = Pick<Expected<'claim'>, keyof ClaimFields>

/** Reads exactly the canonical text. Throws Malformed for any other encoding of the same document. */
export function readClaim(text: string): ClaimDocument {
  const what = 'claim document'
  wellFormed(text.length <= claimDocumentCharsMax, `${what}: ${text.length} characters are too many`)
  const claim = ofForm(what, ClaimDocument, parsedJson(what, utf8(text)))
  wellFormed(claimText(claim) === text, `${what}: not in its canonical form`)
  return claim
}

/** Returns the expectations for the receipt. If the document is unreadable, no value satisfies them. */
export function expectedClaim(claim: Parsed<ClaimDocument>): ExpectedClaim {
  return exactly(claim.ok ? claimFieldsOf(claim.value, text => sha256(utf8(text))) : noFields)
}

const nothing = new Uint8Array(0)
const noFields = {
  claimDigest: nothing,
  inferenceUrl: '',
  inferenceModel: '',
  gateway: '',
  gatewayDigest: nothing,
  resolvers: [],
  egressLimitBytes: -1,
  egressNames: '',
  gatewayKeyDigest: nothing,
} as const satisfies Record<keyof ClaimFields, unknown>

/** Names of the receipt's checks that compare the claim document. */
export const claimCheckNames = Object.keys(noFields).map(checkNameOf)

/** Checks that the document is readable, is about this instance, and had a network; only then is it final. */
export function claimDocumentCheck(
  claim: Parsed<ClaimDocument>,
  shown: {
    readonly organization: string
    readonly name: string
    readonly hostname: string
    readonly publicKey: string
  },
): Check {
  const name = 'claim-document'
  if (!claim.ok) return fail(name, claim.reason)
  const { claim: own, network } = claim.value
  const wrong = (['organization', 'name', 'hostname', 'publicKey'] as const).filter(
    field => own[field] !== shown[field],
  )
  if (wrong.length > 0) return fail(name, `its ${wrong.join(', ')} is another than the attestation's`)
  if (network === null) return fail(name, 'no network was configured at the claim, so the present one is not attested')
  const addresses = [network.address, network.v6?.address].filter(text => text !== undefined).join(' and ')
  return pass(
    name,
    `address ${addresses}, resolvers ${network.resolvers.join(', ') || 'none'}; ${egressWords(claim.value)}`,
  )
}

/** Describes egress as a promise, because the firewall is the host's. */
function egressWords({ claim: { egress } }: ClaimDocument): string {
  const names = egress.names === 'listed' ? 'listed names only' : 'the public Internet'
  return `the host promises ${egress.limitBytes} bytes of egress, to ${names}`
}

/** Describes where prompts are sent. Null if the instance has no gateway. */
function promptWords({ claim: { inference } }: ClaimDocument): string | null {
  const { baseUrl, model, gateway } = inference
  if (gateway.kind === 'none') return null
  const where = `prompts go to ${baseUrl}, model ${model}`
  if (gateway.kind === 'unattested') return `OUTSIDE, ${UNATTESTED[gateway.why]}: ${where}`
  // Put models outside first, because a summary may truncate the line.
  const outside =
    gateway.outside.length === 0 ? '' : `OUTSIDE upstreams may get them from there (${gateway.outside.join(', ')}): `
  const pinned = gateway.workloads === undefined ? '' : `, workload.json ${listWords(gateway.workloads)}`
  const allowed = gateway.allow === undefined ? '' : `, with ${gateway.allow.join(', ')}`
  return `${outside}${where}: inside the measured VM ${listWords(gateway.measurements)}${pinned}${allowed}`
}

function listWords([first = '', ...more]: readonly string[]): string {
  return `${first.slice(0, shownHexChars)}…${more.length === 0 ? '' : ` or ${more.length} more`}`
}

const shownHexChars = 16

const UNATTESTED = {
  host: 'to the process of a host',
  'no-worker': 'to a gateway without a worker of its own, which has no evidence',
  elsewhere: 'to a gateway that the operator names',
} as const satisfies Record<UnattestedReason, string>

/**
 * Checks whether the guest generated its gateway key. A host that has the key can impersonate the instance. The check
 * passes if the owner accepts an unattested gateway, whose operator sees the key of each request anyway.
 */
export function gatewayKeyCheck(claim: Parsed<ClaimDocument>, expected: ExpectedGateway): Check {
  const name = 'gateway-key'
  if (!claim.ok) return notChecked(name, 'the claim document cannot be read', true)
  const { key, keySha256, gateway } = claim.value.claim.inference
  if (key != null) {
    return pass(name, `drawn inside the VM: ${key.prefix}, SHA-256 of its secret ${key.secretSha256}`)
  }
  if (gateway.kind === 'none' && keySha256 == null) return pass(name, 'the instance has no gateway and no key')
  const found =
    keySha256 == null
      ? 'the VM drew no key, so requests come to the gateway without one, or with one that was brought into the VM'
      : `the host chose the key (SHA-256 ${keySha256}), and so can send requests as this instance`
  const reason = acceptedReason(claim, expected)
  if (reason !== null) return pass(name, `${found}; accepted with the gateway: ${UNATTESTED[reason]}`)
  const remedy = `create another instance, or accept that by --allow ${hostKeyName}`
  return check(
    name,
    expected.allow?.includes(hostKeyName) === true,
    `${found}; ${remedy}`,
    `${found}; accepted by name`,
  )
}

type GatewayAsked = {
  readonly expected: ExpectedGateway
  /** The receipt claims to be simulated; another check compares this with its root. */
  readonly simulated: boolean
}

/** Checks where prompts are sent. Explicit expectations are compared even if the pin is waived. */
export function promptsCheck(claim: Parsed<ClaimDocument>, { expected, simulated }: GatewayAsked): Check {
  const name = 'prompts'
  if (!claim.ok) return notChecked(name, 'the claim document cannot be read', true)
  const { baseUrl, gateway } = claim.value.claim.inference
  const words = promptWords(claim.value)
  if (words === null) {
    return check(name, baseUrl === '', `the claim names ${baseUrl} and no gateway`, 'the instance has no gateway')
  }
  if (baseUrl === '') return fail(name, 'the claim names a gateway and no address of it')
  if (gateway.kind === 'unattested') {
    const remedy = `nothing attests it; accept that with --unattested-gateway ${gateway.why}`
    return check(name, expected.unattested === gateway.why, `${words}; ${remedy}`, words)
  }
  if (gateway.kind === 'none') return fail(name, 'the claim names no gateway')
  const problem = gatewayProblem(gateway, expected, simulated)
  return check(name, problem === null, `${problem}; ${words}`, words)
}

function gatewayProblem(gateway: AttestedGateway, expected: ExpectedGateway, simulated: boolean): string | null {
  const { measurements, operatorKey, outside, simulatedRoot } = gateway
  const { policy, outside: allowed } = expected
  if (simulatedRoot !== null && !simulated) return 'the gateway may prove itself by a simulated root'
  if (policy !== 'any' && policy.measurements !== 'any') {
    const known = policy.measurements.map(toHex)
    const strange = measurements.find(measurement => !known.includes(measurement))
    if (strange !== undefined)
      return `the gateway may have measurement ${strange}, which is none of those that you expect`
  }
  if (policy !== 'any' && policy.idKeyDigest !== 'any') {
    const keys = digestsOf(policy.idKeyDigest).map(toHex)
    if (operatorKey === null || !keys.includes(operatorKey))
      return `the gateway's operator key is ${operatorKey ?? 'any'}, not ${keys.join(' or ')}`
  }
  const leak = outside.find(entry => {
    const { name, origin } = readOutside(entry)
    return !isAllowed(allowed, name, origin)
  })
  return leak === undefined
    ? workloadProblem(gateway, expected)
    : `upstream ${leak} is OUTSIDE of the measured VM and may get prompts; accept that by --allow-outside ${leak}`
}

/** Compares the gateway's allowed workload.json and its settings with the expected ones. Null if they match. */
function workloadProblem({ workloads, allow = [] }: AttestedGateway, expected: ExpectedGateway): string | null {
  if (expected.workloads !== undefined) {
    if (workloads === undefined) return 'the claim takes a gateway with any workload.json of its operator'
    const known = expected.workloads.map(toHex)
    const strange = workloads.find(workload => !known.includes(workload))
    if (strange !== undefined)
      return `the gateway may have workload.json ${strange}, which is none of those that you expect`
  }
  const exposure = allow.find(name => !(expected.allow ?? []).includes(name))
  if (exposure === undefined) return null
  return `${exposure}: ${EXPOSURE_WORDS[exposure]}; accept that by --allow ${exposure}`
}

/** Describes the gateway's pinned values for pins.ts; null if nothing is pinned. */
export function pinnedGateway(claim: Parsed<ClaimDocument>, { policy, workloads }: ExpectedGateway): string | null {
  if (claim.ok && claim.value.claim.inference.gateway.kind === 'none') return 'the instance has no gateway'
  if (policy === 'any' || policy.measurements === 'any') return null
  const pinned = workloads === undefined ? null : `${workloads.length} workload.json`
  const keys = [keyWords('operator key', policy.idKeyDigest), pinned].filter(words => words !== null).join(', ')
  if (keys === '') return null
  const { length } = policy.measurements
  return `${length} measurement${length === 1 ? '' : 's'} of the gateway, ${keys}`
}

/** Returns the reason for which the owner accepts an unattested gateway, if the claim has the same one. */
export function acceptedReason(claim: Parsed<ClaimDocument>, { unattested }: ExpectedGateway): UnattestedReason | null {
  const gateway = claim.ok ? claim.value.claim.inference.gateway : null
  return gateway?.kind === 'unattested' && gateway.why === unattested ? gateway.why : null
}
