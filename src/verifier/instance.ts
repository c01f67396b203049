// Verifies an instance's attestation: that the SSH host key of this host name was made inside a VM of the expected
// image, and claimed for this owner. Pure.
//
// The verdict groups the checks by what an owner needs to establish before the first login. The receipt's own verdict
// has every check.

import type { TrustedRoot } from '../attest/amd/roots.ts'
import { parsedJson } from '../attest/encoding/json.ts'
import { sha256 } from '../attest/hash.ts'
import { type Parsed, parsed, reasonOf, wellFormed } from '../attest/malformed.ts'
import { floorAgeCheck } from '../attest/policy/floors.ts'
import type { Policy } from '../attest/policy/policy.ts'
import { decodeReceipt } from '../attest/receipt/receipt.ts'
import { nativeVerifiers, verifyReceipt } from '../attest/receipt/verifiers.ts'
import type { ReceiptVerdict } from '../attest/receipt/verify.ts'
import type { SnpReport } from '../attest/report/report.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../attest/verdict.ts'
import { concat, equalConstantTime, fromBase64Url, toHex, utf8 } from '../base/bytes.ts'
import type { EgressPolicy } from '../contract/http/egress-policy.ts'
import { InstanceAttestation } from '../contract/http/instance-attestation.ts'
import { SuccessEnvelope } from '../contract/http/problem.ts'
import type { ClaimDocument } from '../contract/vm/claim-document.ts'
import type { LaunchDocument } from '../contract/vm/launch.ts'
import type { SecretFacts } from '../contract/vm/orders/secret-facts.ts'
import {
  acceptedReason,
  claimCheckNames,
  claimDocumentCheck,
  type ExpectedGateway,
  expectedClaim,
  gatewayKeyCheck,
  pinnedGateway,
  promptsCheck,
  readClaim,
} from './claim.ts'
import { ofForm } from './form.ts'
import { INSTANCE_PINS, type InstancePins } from './instance-pins.ts'
import { type ExpectedImage, expectedMeasurement, imageCheck, launchWords, readLaunch } from './launch.ts'
import { loginKeyChecks } from './ordered/login-keys.ts'
import { type ExpectedPort, publishedChecks } from './ordered/published.ts'
import { reachChecks } from './ordered/reach.ts'
import { secretChecks } from './ordered/secrets.ts'
import { pinChecks } from './pins.ts'
import { COMMON_GROUPS, type Group, groupsOf, nonceCheck, withCrl, withFloors } from './receipt-groups.ts'
import { type KnownHost, readKnownHost, readSshKey, type SshKey } from './ssh-key.ts'

/** Size limit. A real document has about 30 KiB. */
export const instanceAttestationBytesMax = 1024 * 1024

/** The requested instance: the three parts of its host name, and the whole name. */
export type InstanceIdentity = {
  readonly name: string
  readonly organization: string
  readonly hostname: string
}

export type InstanceQuestion = {
  readonly instance: InstanceIdentity
  /** The nonce that was sent. */
  readonly nonce: Uint8Array | 'any'
  /** The time for which to verify, in milliseconds since 1970. The verifier reads no clock. */
  readonly asOf: number
  /** Maximum age of the statement at `asOf`. */
  readonly ageMsMax: number | 'any'
  /** Trusted roots: AMD_ROOTS, and a simulated root (`readSimulatedRoot`) only if the caller chooses to. */
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  /** A caller waives a pin with 'any'; see pins.ts. */
  readonly pins: InstancePins
  /** Revocation list in DER that replaces the one in the receipt; undefined to use that one. */
  readonly crl: Uint8Array | undefined
  /**
   * The caller's own keys in OpenSSH's format, one or several: the instance must accept one of them. 'any' skips the
   * check, and does not detect a host that claimed the instance with its own key.
   */
  readonly publicKey: string | readonly string[] | 'any'
  /** The only SSH keys that may log in, in OpenSSH's format. Absent to accept and name those of signed orders. */
  readonly loginKeys?: readonly string[]
  /** The expected image, whose manifest gives the measurement. */
  readonly image: ExpectedImage | 'any'
  /** The expected gateway for its prompts. */
  readonly gateway: ExpectedGateway
  /** Destinations that its programs may reach. Default: 'any', which accepts any policy and none. */
  readonly egressPolicy?: EgressPolicy | 'any'
  /** Exactly its secrets, in any order. Default: 'any', which accepts and names all. */
  readonly secrets?: readonly SecretFacts[] | 'any'
  /**
   * Exactly its published ports, in any order. Default: 'any', which accepts and names all; but none where
   * `egressPolicy` refuses destinations, because anyone who reaches a port gets what the program there hands out.
   */
  readonly published?: readonly ExpectedPort[] | 'any'
}

export type InstanceVerdict = Verdict & {
  /** True if the receipt's chain ends at a root that is not AMD's: no hardware attests it. */
  readonly simulated: boolean
  /** Every check of the receipt; null if the document is unreadable. */
  readonly receipt: ReceiptVerdict<'claim'> | null
  /** The launch document; null if unreadable. Trust it only in a good verdict. */
  readonly launch: LaunchDocument | null
  /** The claim document, with the gateway key as a digest, under the same conditions. */
  readonly claim: ClaimDocument | null
  /** The SSH host key, under the same conditions. */
  readonly hostKey: SshKey | null
  /** Line for known_hosts(5). Null unless the verdict is good. */
  readonly knownHost: KnownHost | null
  /** The instance's X-Wing public key: ML-KEM-768, then X25519. Null unless the verdict is good. */
  readonly xwingPublicKey: Uint8Array | null
}

const hostnameCharsMax = 253
const labelPattern = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/
const namePattern = /^[a-z0-9]{8}$/

/** Parses NAME.ORGANIZATION.DOMAIN, and returns the domain too; null if the name is malformed. */
export function readInstanceHostname(text: string): (InstanceIdentity & { readonly domain: string }) | null {
  const [name = '', organization = '', ...domain] = text.split('.')
  const isHostname = text.length <= hostnameCharsMax && [organization, ...domain].every(text => labelPattern.test(text))
  if (!namePattern.test(name) || !isHostname || domain.length === 0) return null
  return { name, organization, hostname: text, domain: domain.join('.') }
}

/** Verifies the body of GET /v1/instances/{name}/attestation, or its `data`, as bytes or parsed. Never throws. */
export async function verifyInstance(
  given: Uint8Array | InstanceAttestation,
  question: InstanceQuestion,
): Promise<InstanceVerdict> {
  const document = parsed(() => readDocument(given))
  const claim: Parsed<ClaimDocument> = document.ok ? parsed(() => readClaim(document.value.claim)) : document
  const pins = pinChecks(INSTANCE_PINS, question.pins, {
    policy: question.policy,
    allowlist: 'any',
    source: question.image === 'any' ? undefined : `the manifest of the image ${question.image.name}`,
    gateway: pinnedGateway(claim, question.gateway),
    unattested: acceptedReason(claim, question.gateway),
  })
  if (!document.ok) return nothing([fail('attestation-format', document.reason), ...pins])
  try {
    return await judge({ document: document.value, claim }, question, pins)
  } catch (error) {
    return nothing([fail('attestation-unexpected', reasonOf(error)), ...pins])
  }
}

function nothing(checks: readonly Check[]): InstanceVerdict {
  const unread = { receipt: null, launch: null, claim: null, hostKey: null, knownHost: null, xwingPublicKey: null }
  return { ...verdict(checks), simulated: false, ...unread }
}

const Envelope = SuccessEnvelope(InstanceAttestation)

function readDocument(given: unknown): InstanceAttestation {
  // Accepts arrays of another realm, for which `instanceof` is false.
  const bytes = ArrayBuffer.isView(given) ? (given as Uint8Array) : null
  wellFormed(bytes === null || bytes.length <= instanceAttestationBytesMax, `${bytes?.length} bytes are too many`)
  const value = bytes === null ? given : parsedJson('attestation', bytes)
  const isEnvelope = typeof value === 'object' && value !== null && Object.hasOwn(value, 'data')
  if (isEnvelope) return ofForm('attestation', Envelope, value).data
  return ofForm('attestation', InstanceAttestation, value)
}

type ParsedAttestation = {
  readonly document: InstanceAttestation
  readonly knownHost: Parsed<KnownHost>
  readonly publicKey: Parsed<SshKey>
  readonly launch: Parsed<LaunchDocument>
  readonly claim: Parsed<ClaimDocument>
}

async function judge(
  { document, claim }: Pick<ParsedAttestation, 'document' | 'claim'>,
  question: InstanceQuestion,
  pins: readonly Check[],
): Promise<InstanceVerdict> {
  const read: ParsedAttestation = {
    document,
    knownHost: parsed(() => readKnownHost(document.known_hosts, question.instance.hostname)),
    publicKey: parsed(() => readSshKey(document.public_key)),
    launch: parsed(() => readLaunch(document.launch)),
    claim,
  }
  const nonce = fromBase64Url(document.nonce) ?? new Uint8Array(0)
  const receipt = await judgeReceipt(read, nonce, question)
  const { knownHost, publicKey } = read
  const launch = read.launch.ok ? read.launch.value : null
  const checks = [
    pass('attestation-format', 'the fields of the contract, and no others'),
    ...pins,
    nonceCheck(nonce, question.nonce),
    instanceCheck(document, question.instance),
    parsedCheck('known-hosts', knownHost, ({ line }) => line),
    parsedCheck('public-key', publicKey, ({ fingerprint }) => fingerprint),
    ...loginKeyChecks({
      claimed: publicKey,
      stated: receipt.statement?.loginKeys ?? null,
      own: question.publicKey,
      only: question.loginKeys,
    }),
    parsedCheck('launch-document', read.launch, launchWords),
    ...launchChecks(document.launch, launch, receipt),
    imageCheck(question.image, launch),
    claimDocumentCheck(claim, { ...document, publicKey: document.public_key }),
    gatewayKeyCheck(claim, question.gateway),
    promptsCheck(claim, { expected: question.gateway, simulated: document.receipt.platform === 'simulated' }),
    ...reachChecks(receipt.statement, question.egressPolicy ?? 'any'),
    ...secretChecks(receipt.statement, question.secrets ?? 'any'),
    ...publishedChecks(receipt.statement, question.published ?? defaultPorts(question.egressPolicy)),
    ...(question.pins.tcb === 'any' ? [] : [floorAgeCheck(question.asOf)]),
    ...groupsOf(receipt.checks, { prefix: 'receipt/', groups: GROUPS, elsewhere: [] }),
  ]
  // The groups contain every check of the receipt, but the verdict must not depend on the grouping.
  const ok = verdict(checks).ok && receipt.ok
  return {
    ok,
    checks,
    simulated: receipt.simulated,
    receipt,
    launch,
    claim: claim.ok ? claim.value : null,
    hostKey: knownHost.ok ? knownHost.value.key : null,
    knownHost: ok && knownHost.ok ? knownHost.value : null,
    xwingPublicKey: ok ? xwingPublicKeyOf(document) : null,
  }
}

/** Groups of the receipt's checks that an owner sees by name. All other checks form `receipt/evidence`. */
const GROUPS: readonly Group[] = [
  ...COMMON_GROUPS,
  {
    name: 'claim',
    members: ['statement-kind', 'expected-organization', 'expected-name', 'expected-hostname'],
  },
  { name: 'claim-document', members: claimCheckNames },
  { name: 'host-key', members: ['expected-ssh-host-key-digest'] },
  { name: 'public-key', members: ['expected-public-key-digest'] },
]

/** The default of `published`. */
export function defaultPorts(egressPolicy: EgressPolicy | 'any' = 'any'): readonly ExpectedPort[] | 'any' {
  return egressPolicy === 'any' || egressPolicy.default === 'allow' ? 'any' : []
}

async function judgeReceipt(
  { document, knownHost, publicKey, launch, claim }: ParsedAttestation,
  nonce: Uint8Array,
  { asOf, ageMsMax, roots, policy, pins, crl, instance, image }: InstanceQuestion,
): Promise<ReceiptVerdict<'claim'>> {
  // An unreadable key fails its own check; no value has an empty digest.
  const digestOf = (key: SshKey | null) => ({ equals: key === null ? new Uint8Array(0) : key.digest })
  const ofImage = image === 'any' || !launch.ok ? null : expectedMeasurement(image, launch.value)
  const isPinnedByImage = ofImage !== null && policy.measurements === 'any'
  const found = await verifyReceipt(withCrl(document.receipt, crl), {
    kind: 'claim',
    nonce,
    asOf,
    ageMsMax,
    roots,
    requireCrl: pins.crl !== 'any',
    tpm: 'any',
    policy: isPinnedByImage ? { ...policy, measurements: [ofImage] } : policy,
    expected: {
      imageName: { equals: launch.ok ? launch.value.image.name : '' },
      // The policy checks it.
      operatorKey: 'any',
      organization: { equals: instance.organization },
      name: { equals: instance.name },
      hostname: { equals: instance.hostname },
      sshHostKeyDigest: digestOf(knownHost.ok ? knownHost.value.key : null),
      publicKeyDigest: digestOf(publicKey.ok ? publicKey.value : null),
      ...expectedClaim(claim),
      // loginKeyChecks compares them.
      loginKeys: 'any',
      // Orders of the owner change it: `reachChecks` compares it.
      egressPolicy: 'any',
      // Orders of the owner change them: `secretChecks` compares them, `reachChecks` adds their hosts.
      secrets: 'any',
      published: 'any',
    },
    verifiers: nativeVerifiers,
  })
  return withFloors(found, pins)
}

function parsedCheck<T>(name: string, read: Parsed<T>, words: (value: T) => string): Check {
  return read.ok ? pass(name, words(read.value)) : fail(name, read.reason)
}

/** Compares fields outside of the statement; `receipt/claim` compares those inside. */
function instanceCheck(document: InstanceAttestation, asked: InstanceIdentity): Check {
  const wrong = (['organization', 'name', 'hostname'] as const).filter(field => document[field] !== asked[field])
  const reasons = wrong.map(field => `${field} is ${JSON.stringify(document[field])}, not ${asked[field]}`)
  return check('instance', wrong.length === 0, reasons.join('; '), asked.hostname)
}

/** Checks that the report attests exactly this text, and that its fields match the report's. */
function launchChecks(text: string, launch: LaunchDocument | null, { report }: ReceiptVerdict<'claim'>): Check[] {
  const fields = ['launch-host-data', 'launch-measurement', 'launch-policy'] as const
  if (report === null) return fields.map(name => notChecked(name, 'there is no report', true))
  const digest = sha256(utf8(text))
  const hostData = check(
    fields[0],
    equalConstantTime(report.hostData, digest),
    `HOST_DATA is ${toHex(report.hostData)}, not ${toHex(digest)}, the SHA-256 of the launch document`,
    toHex(digest),
  )
  if (launch === null) {
    return [hostData, ...fields.slice(1).map(name => notChecked(name, 'the launch document cannot be read', true))]
  }
  return [hostData, ...documentChecks(launch, report)]
}

function documentChecks(launch: LaunchDocument, report: SnpReport): Check[] {
  const measurement = toHex(report.measurement)
  const policy = `0x${report.policy.toString(16)}`
  return [
    check(
      'launch-measurement',
      launch.measurement === measurement,
      `the launch document has ${launch.measurement}, the report ${measurement}`,
      measurement,
    ),
    check(
      'launch-policy',
      BigInt(launch.policy) === report.policy,
      `the launch document has ${launch.policy}, the report ${policy}`,
      policy,
    ),
  ]
}

function xwingPublicKeyOf({ receipt }: InstanceAttestation): Uint8Array {
  const { keys } = decodeReceipt(receipt)
  return concat(keys.mlkem768, keys.x25519)
}
