// Options of `attestedFetch`, parsed once and strictly: an unknown name or a missing pin is an error before anything is
// sent. Pure; throws OptionError.

import { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
import { derBlocks } from '../../attest/encoding/pem.ts'
import { sha256 } from '../../attest/hash.ts'
import { type Policy, parsePolicy } from '../../attest/policy/policy.ts'
import { equalConstantTime, fromHex, toHex, utf8 } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { dayMs, hourMs } from '../../base/time.ts'
import { EXPOSURE_WORDS, type Exposure } from '../../contract/vm/exposure.ts'
import { type ExpectedAllowlist, readAllowlist } from '../allowlist.ts'
import { allPins, PINS, type Pins, pinCheckName, pinChecks, waiversProblem } from '../pins.ts'
import { readSimulatedRoot } from '../simulated-root.ts'
import { OptionError } from './errors.ts'

export type AttestedFetchOptions = {
  /**
   * The gateway: `https://HOST`, with port and path if it has them. Evidence is fetched below it, and requests may only
   * be sent there. A trailing `/v1`, as in an OpenAI client's baseURL, is removed.
   */
  readonly url: string | URL
  /**
   * Your expectations, in the JSON form of `strongroom verify policy-example`, as text or as an object: measurements,
   * the operator's key (`idKeyDigest`), HOST_DATA, the minimum TCB. Every field is required; 'any' skips its check.
   */
  readonly policy: string | Readonly<Record<string, unknown>>
  /** The operator's `allowlist.json`, byte by byte: the receipts must contain its digest, images and commands. */
  readonly allowlist?: string | Uint8Array | 'any'
  /**
   * `workload.json` of a gateway in a VM of its own, byte by byte as published by the operator: HOST_DATA must be its
   * digest. Default: what the gateway serves, if the policy names the operator's key or HOST_DATA.
   */
  readonly workload?: string | Uint8Array
  /**
   * Upstreams outside of the gateway's measured VM that may receive your prompts: `NAME=https://HOST`, or `NAME` for
   * any address that its host chooses. All others fail the verification. Default: none.
   */
  readonly outside?: readonly string[]
  /**
   * SHA-256 of each workload.json that you accept (HOST_DATA), in hexadecimal; 1 to 64. Any other fails the
   * verification. Default: any that the other pins accept.
   */
  readonly workloads?: readonly string[]
  /**
   * Settings of workload.json that you accept by name: 'usage-labels' (the host receives `user` and `metadata`),
   * 'no-padding' (packets reveal the length of each token), 'kept-responses' (content stays in the gateway's memory),
   * 'traces' (the host receives spans: times of each attempt, finish reasons, counts). Any other fails the
   * verification. Default: none.
   */
  readonly allow?: readonly Exposure[]
  /**
   * For a gateway without a VM of its own: its `gateway-configuration.json`, byte by byte, which lists its upstreams.
   * Required beside an allowlist or HOST_DATA of such a gateway; 'any' accepts any upstreams.
   */
  readonly configuration?: string | Uint8Array | 'any'
  /**
   * Pins that you waive with 'any'; all others are 'required'. `measurement`: measurements in the policy. `allowlist`:
   * the allowlist, or in the policy an operator's key or HOST_DATA. `vmpl`: not every VMPL. `crl`: a revocation list.
   * `tcb`: the firmware of AMD's bulletins. Instead of 'any', it accepts parts by name, each with a reason that the
   * verdict repeats: `{ microcode: 'the host is updated in December' }`.
   */
  readonly pins?: Partial<Pins>
  /** Revocation list in PEM or DER that replaces the one in the evidence. */
  readonly crl?: string | Uint8Array
  /**
   * PEM of a simulated platform's root, for development: verifies evidence without hardware, which `simulated` reports.
   */
  readonly simulatedRoot?: string | Uint8Array
  /**
   * Bun and Node: PEM of the authorities that may issue the gateway's certificate. Default: the system's. 'any' accepts
   * every certificate and name, because only the attested key matters.
   */
  readonly ca?: string | 'any'
  /**
   * 'required', the default: bodies of requests and responses are encrypted to the attested key (EHBP with X-Wing),
   * wherever TLS is terminated. 'off': only the pinned TLS connection protects them, which pages do not have.
   */
  readonly encryption?: 'required' | 'off'
  /** No new request relies on older evidence. Default: one hour. */
  readonly evidenceAgeMaxMs?: number
  /**
   * Age at which the next request triggers a background renewal of the evidence. Default: half of `evidenceAgeMaxMs`.
   */
  readonly reverifyAfterMs?: number
  /** Timeout for fetching and judging evidence. Default: 30 s. */
  readonly evidenceTimeoutMs?: number
  /** Bun and Node: timeout for opening a connection, including its TLS handshake. Default: 10 s. */
  readonly connectTimeoutMs?: number
  /**
   * Bun and Node: longest silence while waiting for or reading a response. Default: 10 minutes; `signal` limits the
   * total.
   */
  readonly idleTimeoutMs?: number
  /** Limit on a request's body, which must fit into memory. Default: 64 MiB. */
  readonly requestBytesMax?: number
  /** Limit on a response that is not an event stream, and is read completely before it is returned. Default: 64 MiB. */
  readonly responseBytesMax?: number
}

/** Trust and expectations: the part of a GatewayQuestion that is constant over verifications. */
type Trust = {
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  readonly pins: Pins
  readonly crl: Uint8Array | undefined
  readonly allowlist: ExpectedAllowlist | 'any'
  readonly configurationDigest: Uint8Array | 'any' | 'required'
  /** Null to use the one that the gateway serves. */
  readonly workload: Uint8Array | null
  /** Allowed upstreams. */
  readonly outside: readonly string[]
  readonly workloads?: readonly Uint8Array[]
  readonly allow: readonly Exposure[]
}

export type Limits = {
  readonly evidenceAgeMaxMs: number
  readonly reverifyAfterMs: number
  readonly evidenceTimeoutMs: number
  readonly requestBytesMax: number
  readonly responseBytesMax: number
}

export type Wire = {
  readonly ca: string | 'any' | undefined
  readonly connectTimeoutMs: number
  readonly idleTimeoutMs: number
}

export type Settings = {
  readonly origin: URL
  /** The gateway's path without a trailing slash; '' if it has none. */
  readonly prefix: string
  readonly trust: Trust
  readonly limits: Limits
  readonly wire: Wire
  readonly encryption: 'required' | 'off'
}

/** Range and default of each number. */
const NUMBERS = {
  evidenceAgeMaxMs: { least: 1_000, most: dayMs, usual: hourMs },
  evidenceTimeoutMs: { least: 100, most: 600_000, usual: 30_000 },
  connectTimeoutMs: { least: 100, most: 600_000, usual: 10_000 },
  idleTimeoutMs: { least: 100, most: dayMs, usual: 600_000 },
  requestBytesMax: { least: 1, most: 1024 * 1024 * 1024, usual: 64 * 1024 * 1024 },
  responseBytesMax: { least: 1, most: 1024 * 1024 * 1024, usual: 64 * 1024 * 1024 },
} as const satisfies Readonly<Record<string, { least: number; most: number; usual: number }>>

const NAMES = [
  ...[
    'url',
    'policy',
    'allowlist',
    'workload',
    'configuration',
    'pins',
    'crl',
    'simulatedRoot',
    'ca',
    'encryption',
    'outside',
    'workloads',
    'allow',
  ],
  ...['reverifyAfterMs', ...Object.keys(NUMBERS)],
]

export function readOptions(options: AttestedFetchOptions): Settings {
  if (typeof options !== 'object' || options === null) throw new OptionError('options', 'they are missing')
  const unknown = Object.keys(options).find(name => !NAMES.includes(name))
  if (unknown !== undefined) throw new OptionError(unknown, `there is no such option; there are ${NAMES.join(', ')}`)
  const { ca, encryption = 'required' } = options
  if (encryption !== 'required' && encryption !== 'off') throw new OptionError('encryption', "say 'required' or 'off'")
  if (ca !== undefined && typeof ca !== 'string') throw new OptionError('ca', "give PEM text, or 'any'")
  const evidenceAgeMaxMs = numberOf(options, 'evidenceAgeMaxMs')
  return {
    ...readAddress(options.url),
    trust: readTrust(options),
    limits: {
      evidenceAgeMaxMs,
      reverifyAfterMs: readReverifyAfter(options, evidenceAgeMaxMs),
      evidenceTimeoutMs: numberOf(options, 'evidenceTimeoutMs'),
      requestBytesMax: numberOf(options, 'requestBytesMax'),
      responseBytesMax: numberOf(options, 'responseBytesMax'),
    },
    wire: {
      ca,
      connectTimeoutMs: numberOf(options, 'connectTimeoutMs'),
      idleTimeoutMs: numberOf(options, 'idleTimeoutMs'),
    },
    encryption,
  }
}

const prefixCharsMax = 256
const prefixPattern = /^(?:\/[A-Za-z0-9._~-]+)*$/

function readAddress(given: string | URL): Pick<Settings, 'origin' | 'prefix'> {
  const wanted = `give https://HOST, https://HOST:PORT or either with a path of at most ${prefixCharsMax} letters, digits and - . _ ~ between slashes`
  let url: URL
  try {
    url = new URL(given)
  } catch {
    throw new OptionError('url', wanted)
  }
  const { protocol, origin, pathname, href } = url
  const prefix = pathname.replace(/\/$/, '').replace(/\/v1$/, '')
  // No user, query or fragment.
  const isPlain = protocol === 'https:' && href === `${origin}${pathname}`
  if (!isPlain || prefix.length > prefixCharsMax || !prefixPattern.test(prefix)) throw new OptionError('url', wanted)
  return { origin: new URL(origin), prefix }
}

function numberOf(options: AttestedFetchOptions, name: keyof typeof NUMBERS): number {
  const { least, most, usual } = NUMBERS[name]
  return within(name, options[name] ?? usual, { least, most })
}

function within(name: string, value: number, { least, most }: { least: number; most: number }): number {
  const fits = Number.isSafeInteger(value) && value >= least && value <= most
  if (!fits) throw new OptionError(name, `give a whole number from ${least} to ${most}`)
  return value
}

function readReverifyAfter({ reverifyAfterMs }: AttestedFetchOptions, evidenceAgeMaxMs: number): number {
  const usual = Math.floor(evidenceAgeMaxMs / 2)
  return within('reverifyAfterMs', reverifyAfterMs ?? usual, { least: 1, most: evidenceAgeMaxMs })
}

function readTrust(options: AttestedFetchOptions): Trust {
  const { simulatedRoot, crl } = options
  const workload = options.workload === undefined ? null : toBytes('workload', options.workload)
  const trust: Trust = {
    roots:
      simulatedRoot === undefined
        ? AMD_ROOTS
        : [...AMD_ROOTS, reading('simulatedRoot', () => readSimulatedRoot(toBytes('simulatedRoot', simulatedRoot)))],
    policy: withWorkload(readPolicy(options.policy), workload),
    workload,
    pins: readPins(options.pins === undefined ? {} : options.pins),
    crl: crl === undefined ? undefined : reading('crl', () => derBlocks(crl, 'X509 CRL', 'revocation list')[0]),
    allowlist: readAllowlistOption(options.allowlist ?? 'any'),
    outside: readOutside(options.outside ?? []),
    ...(options.workloads === undefined ? {} : { workloads: readWorkloads(options.workloads) }),
    allow: readAllow(options.allow ?? []),
    configurationDigest: readConfiguration(options.configuration),
  }
  for (const check of pinChecks(PINS, trust.pins, { ...trust, workloadCount: trust.workloads?.length ?? 0 })) {
    const pin = PINS.find(name => pinCheckName(name) === check.name)
    if (check.outcome === 'fail' && pin !== undefined) throw new OptionError(...MISSING[pin])
  }
  return trust
}

function readConfiguration(given: AttestedFetchOptions['configuration']): Trust['configurationDigest'] {
  if (given === undefined) return 'required'
  return given === 'any' ? 'any' : sha256(toBytes('configuration', given))
}

/** Where to set a missing pin. A revocation list and the floors are required unless waived, and cannot be missing. */
const MISSING: Readonly<Record<(typeof PINS)[number], readonly [param: string, problem: string]>> = {
  measurement: [
    'policy.measurements',
    "no measurement is expected: name those of the image, or say pins: { measurement: 'any' }",
  ],
  allowlist: [
    'allowlist',
    "no pin identifies the gateway's operator: give `workload`, `workloads` or `allowlist`, or in the policy `idKeyDigest` or `hostData`, or pins: { allowlist: 'any' }",
  ],
  vmpl: ['policy.vmpls', "every VMPL is accepted: name [0], or say pins: { vmpl: 'any' }"],
  crl: ['pins.crl', 'no revocation list is required'],
  tcb: ['pins.tcb', 'no floor for the TCB is required'],
}

function readPolicy(given: AttestedFetchOptions['policy']): Policy {
  if (given === undefined) {
    throw new OptionError('policy', 'it is missing: start from what `strongroom verify policy-example` prints')
  }
  try {
    return parsePolicy(given)
  } catch (error) {
    // Most messages already name the field.
    const message = messageOf(error)
    const [, param = 'policy', problem = message] = /^(policy\S*): (.*)$/s.exec(message) ?? []
    throw new OptionError(param, problem, { cause: error })
  }
}

/** Adds HOST_DATA to the policy, to compare with the caller's own document. */
function withWorkload(policy: Policy, workload: Uint8Array | null): Policy {
  if (workload === null) return policy
  const hostData = sha256(workload)
  if (policy.hostData !== 'any' && !equalConstantTime(policy.hostData, hostData)) {
    throw new OptionError('policy.hostData', `it is not the SHA-256 of \`workload\`, which is ${toHex(hostData)}`)
  }
  return { ...policy, hostData }
}

function readPins(given: Partial<Pins>): Pins {
  if (typeof given !== 'object' || given === null) throw new OptionError('pins', "give { NAME: 'any' }")
  for (const [name, value] of Object.entries(given)) {
    const isPin = PINS.some(pin => pin === name)
    if (!isPin) throw new OptionError(`pins.${name}`, `there is no such pin; there are ${PINS.join(', ')}`)
    if (value === 'required' || value === 'any') continue
    if (name !== 'tcb' || typeof value !== 'object' || value === null) {
      throw new OptionError(`pins.${name}`, "say 'required' or 'any'")
    }
    const problem = waiversProblem({ ...value })
    if (problem !== null) throw new OptionError(`pins.${name}`, problem)
  }
  return { ...allPins, ...given }
}

function readOutside(given: readonly string[]): readonly string[] {
  const isNames = Array.isArray(given) && given.every(name => typeof name === 'string' && name !== '')
  if (!isNames) throw new OptionError('outside', "give upstreams, like ['name=https://host']")
  return [...given]
}

const workloadsMax = 64

function readWorkloads(given: readonly string[]): Uint8Array[] {
  const digests = Array.isArray(given) ? given.map(text => (typeof text === 'string' ? fromHex(text) : null)) : []
  const isDigests = digests.length >= 1 && digests.length <= workloadsMax
  if (isDigests && digests.every(digest => digest?.length === 32)) return digests.flatMap(digest => digest ?? [])
  throw new OptionError('workloads', `give 1 to ${workloadsMax} SHA-256 of workload.json, in hexadecimal`)
}

function readAllow(given: readonly Exposure[]): readonly Exposure[] {
  const isNames = Array.isArray(given) && given.every(name => Object.hasOwn(EXPOSURE_WORDS, name))
  if (!isNames) throw new OptionError('allow', `give a list of ${Object.keys(EXPOSURE_WORDS).join(', ')}`)
  return [...given]
}

function readAllowlistOption(given: string | Uint8Array): ExpectedAllowlist | 'any' {
  return given === 'any' ? 'any' : reading('allowlist', () => readAllowlist(toBytes('allowlist', given)))
}

function toBytes(param: string, given: string | Uint8Array): Uint8Array {
  if (typeof given === 'string') return utf8(given)
  // Accepts arrays of another realm, for which `instanceof` is false.
  if (ArrayBuffer.isView(given)) return new Uint8Array(given.buffer, given.byteOffset, given.byteLength)
  throw new OptionError(param, 'give its text or its bytes')
}

function reading<T>(param: string, read: () => T | undefined): T {
  try {
    const value = read()
    if (value !== undefined) return value
  } catch (error) {
    if (error instanceof OptionError) throw error
    throw new OptionError(param, messageOf(error), { cause: error })
  }
  throw new OptionError(param, 'there is nothing in it')
}
