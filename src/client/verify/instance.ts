// strongroom verify instance: verifies a fresh or saved attestation, and writes the line for known_hosts. Effects: the
// network, files.

import { join } from 'node:path'
import { InvalidArgumentError } from 'commander'
import type { Policy } from '../../attest/policy/policy.ts'
import { type Check, notChecked, verdict } from '../../attest/verdict.ts'
import { toBase64Url, toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import type { LogFact } from '../../contract/http/log-entry.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readInput } from '../../terminal/input-file.ts'
import { timeOption } from '../../terminal/options.ts'
import { type Paint, type ShownVerdict, verdictDocument } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import { freshAgeMsMax, nonceBytes } from '../../verifier/gateway.ts'
import {
  type InstanceIdentity,
  type InstanceQuestion,
  type InstanceVerdict,
  instanceAttestationBytesMax,
  readInstanceHostname,
  verifyInstance,
} from '../../verifier/instance.ts'
import { INSTANCE_PINS } from '../../verifier/instance-pins.ts'
import type { KnownHost } from '../../verifier/ssh-key.ts'
import { type ClientDefaults, clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { type KnownHostsUpdate, writeKnownHost } from '../known-hosts.ts'
import { manifestOfGateway, manifestOfLaunch } from '../known-images.ts'
import type { LogJudgement } from '../log/judge.ts'
import {
  addLogOptions,
  askChipList,
  askLog,
  type LogOptions,
  type LogQuestion,
  logDocument,
  loggedPins,
  readLogOptions,
  withLog,
} from '../log/options.ts'
import { readCrl } from '../trust/crl-file.ts'
import { readInstancePolicy } from '../trust/instance-policy.ts'
import type { PinOptions } from '../trust/pin-options.ts'
import { addPinOptions, readPins, withFlags } from '../trust/pin-options.ts'
import { addPolicyFlags, measurementSources, type PolicyFlags } from '../trust/policy-flags.ts'
import { egressPolicyIn, secretsIn } from '../trust/reach-options.ts'
import { addEvidenceOptions, type EvidenceOptions, readRoots } from '../trust/trust-options.ts'
import { type Plain, plainVerdict } from '../verdict/plain.ts'
import { withOperatorKey } from './config-pins.ts'
import { addGatewayPinOptions, type GatewayPinOptions, readExpectedGateway } from './gateway-options.ts'
import { readImage } from './image-option.ts'
import { instanceWords, type StoredImages, statedPolicy } from './instance-facts.ts'
import { fetchAttestation } from './instance-source.ts'
import {
  acceptedKey,
  type OwnKey,
  type OwnKeys,
  readLoginKeys,
  readOwnKeys,
  withOwnKeyAdvice,
} from './keys/own-keys.ts'
import { isFailed } from './pin-commands.ts'
import { publishedOf } from './published-facts.ts'
import { nonceOption } from './receipt-options.ts'
import { refuseConnectionOptions } from './saved-document.ts'
import { secretsOf } from './secret-facts.ts'
import { addServiceOptions, readService, type ServiceOptions } from './service-options.ts'

/** Options of `verify instance` and `ssh`. */
export type InstanceOptions = PinOptions &
  PolicyFlags &
  GatewayPinOptions &
  EvidenceOptions &
  LogOptions &
  ServiceOptions & {
    policy?: string
    image?: string
    publicKey?: string
    egressPolicy?: string
    secrets?: string
    loginKeys?: string
  }

type VerifyOptions = InstanceOptions & {
  document?: string
  nonce?: Uint8Array
  asOf?: number
  /** False with --no-known-hosts. */
  knownHosts: string | boolean
}

export type AskedInstance = InstanceIdentity & { readonly domain: string }

export function addVerifyInstance(verify: Command): void {
  const command = verify
    .command('instance')
    .description(
      'verify that the SSH host key of an instance was made in a VM of the expected image, claimed for you, and where its prompts go',
    )
    .argument('<hostname>', 'NAME.ORGANIZATION.DOMAIN', instanceArgument)
    .option('--document <file>', 'a saved response of service A, instead of a request; needs no network')
    .option('--nonce <text>', 'the nonce of the request for --document, 43 characters', nonceOption)
    .option('--as-of <time>', 'verify for this time in UTC, like 2026-06-01T00:00:00Z; default now', timeOption)
    .option('--known-hosts <file>', 'file that gets the host key on PASS; default ~/.ssh/known_hosts')
    .option('--no-known-hosts', 'do not write the host key')
  addInstanceOptions(command)
    .addHelpText(
      'after',
      clientConfigHelp +
        helpText(
          'strongroom verify instance k3v9x2ma.acme.agents.example --key-file key.txt --ca ca.pem --policy policy.json --gateway-policy gateway.json',
          'strongroom verify instance k3v9x2ma.acme.agents.example --document attestation.json --nonce TEXT --policy policy.json --gateway-policy gateway.json',
        ),
    )
    .runs(verifyAndKeep)
}

export function addInstanceOptions(command: Command, apiDefault = 'https://instances.DOMAIN:8441'): Command {
  addServiceOptions(command, apiDefault)
    .option('--policy <file>', 'JSON as in `verify policy-schema`; it names the measurements and the operator key')
    .option('--image <path>', 'directory or manifest.json of the expected image; sets the measurement too')
    .option(
      '--public-key <file|line>',
      'your SSH key, which the instance must accept; default: one of ~/.ssh/*.pub or of ssh-agent',
    )
  command.option(
    '--login-keys <file>',
    'the only SSH keys that may log in, as lines of .pub files; default: keys that signed orders added are shown and accepted',
  )
  command.option(
    '--egress-policy <file>',
    'what its programs may reach, as JSON of `strongroom egress show --json`; no other is accepted',
  )
  command.option('--secrets <file>', 'its secrets, as JSON of `strongroom secret ls --json`; no others are accepted')
  const pinned = addEvidenceOptions(addGatewayPinOptions(addPolicyFlags(command)))
  return addLogOptions(addPinOptions(pinned, INSTANCE_PINS))
}

export type JudgedInstance = {
  readonly found: InstanceVerdict
  /** The verdict in the wording of the command line. */
  readonly shown: ShownVerdict
  readonly plain: Plain
  /** Null if no log was used. */
  readonly logged: LogJudgement | null
  readonly asOf: number
  /** The caller's own key that the instance lets in; null if none is known. */
  readonly ownKey: OwnKey | null
  /** The second expectation of `judgeExpected` decided. */
  readonly isEarlier: boolean
}

/** A second expectation, for the VM with this host key alone: `ssh-ed25519 AAAA…`; null for no VM. */
export type EarlierExpectation = { readonly expectation: InstanceExpectation; readonly hostKey: string | null }

/** All that an owner expects of an instance, read before the first request. */
export type InstanceExpectation = Omit<InstanceQuestion, 'instance' | 'nonce' | 'asOf' | 'ageMsMax'> & {
  readonly ownKeys: OwnKeys
  readonly log: LogQuestion | null
  readonly defaults: ClientDefaults
  /** Where the expected measurements come from, for people. */
  readonly sources: readonly string[]
}

/**
 * Reads all that an owner expects. `identities`: identity files for ssh. `images`: those instead of client.toml's.
 * Fault invalid_request.
 */
export async function readExpectation(
  run: Run,
  given: InstanceOptions,
  identities: readonly string[] = [],
  images: Pick<ClientDefaults, 'image' | 'gateway_image'> = {},
): Promise<InstanceExpectation> {
  const defaults = { ...(await loadClientDefaults(run.io.env)), ...images }
  const log = await readLogOptions(run, given)
  const pins = readPins(loggedPins(given, log))
  const ownKeys = await readOwnKeys(run.io.env, given.publicKey ?? defaults.public_key, identities)
  const [policyFile, imagePath] = [given.policy ?? defaults.policy, given.image ?? defaults.image]
  const statedOptions = {
    egressPolicy: egressPolicyIn(given.egressPolicy),
    secrets: secretsIn(given.secrets),
    loginKeys: given.loginKeys === undefined ? ('any' as const) : readLoginKeys(given.loginKeys),
  }
  const read = await readInstancePolicy(policyFile, pins, given, statedOptions, defaults.operator_key)
  const { policy, loginKeys, ...stated } = read
  return {
    ownKeys,
    log,
    defaults,
    sources: [...measurementSources(policy, given, policyFile), ...(imagePath === undefined ? [] : [imagePath])],
    pins,
    roots: await readRoots(given.trustSimulatedRoot ?? defaults.trust_simulated_root),
    policy: await withOperatorKey(policy, defaults),
    crl: readCrl(given.crl),
    publicKey: ownKeys.lines,
    ...(loginKeys === 'any' ? {} : { loginKeys }),
    ...stated,
    image: await readImage(imagePath),
    gateway: await readExpectedGateway(given, defaults),
  }
}

/**
 * Judges a saved document, or a fresh one from service A. `identities`: identity files for ssh. Faults: those of
 * `fetchAttestation`, and invalid_request.
 */
export async function judgeInstance(
  run: Run,
  instance: AskedInstance,
  given: InstanceOptions & Partial<Pick<VerifyOptions, 'document' | 'nonce' | 'asOf'>>,
  identities: readonly string[] = [],
): Promise<JudgedInstance> {
  if (given.document !== undefined) {
    const { ca, timeoutMs, api, keyFile } = given
    refuseConnectionOptions({ ca, 'timeout-ms': timeoutMs, api, 'key-file': keyFile })
  }
  // Read before using the network, so that a mistake costs no request.
  return await judgeExpected(run, instance, given, await readExpectation(run, given, identities))
}

/**
 * Judges like `judgeInstance`, by an expectation that was read before. `readEarlier`: a second one, which counts if the
 * first refuses the evidence, this one accepts it, and the VM has its host key.
 */
export async function judgeExpected(
  run: Run,
  instance: AskedInstance,
  given: InstanceOptions & Partial<Pick<VerifyOptions, 'document' | 'nonce' | 'asOf'>>,
  expectation: InstanceExpectation,
  readEarlier: () => Promise<EarlierExpectation | null> = async () => null,
): Promise<JudgedInstance> {
  const document = await documentOf(run, instance, given, expectation.defaults)
  const judged = await judgeDocument(run, instance, { given, document, expectation })
  if (judged.shown.ok) return judged
  const earlier = await readEarlier()
  if (earlier === null) return judged
  const again = await judgeDocument(run, instance, { given, document, expectation: earlier.expectation })
  if (!again.shown.ok) return judged
  const { knownHost } = again.found
  if (knownHost !== null && hostKeyOf(knownHost) === earlier.hostKey) return { ...again, isEarlier: true }
  return await judgeDocument(run, instance, { given, document, expectation, isOtherVm: true })
}

/** The key of a known_hosts line, `ssh-ed25519 AAAA…`. */
export function hostKeyOf({ line }: KnownHost): string {
  return line.split(' ').slice(1).join(' ')
}

type Judging = {
  readonly given: InstanceOptions & Partial<Pick<VerifyOptions, 'asOf'>>
  readonly document: Document
  readonly expectation: InstanceExpectation
  /** The VM runs images of an earlier PASS, but has another host key. */
  readonly isOtherVm?: boolean
}

async function judgeDocument(
  run: Run,
  instance: AskedInstance,
  { given, document: { bytes, nonce, isFresh }, expectation, isOtherVm = false }: Judging,
): Promise<JudgedInstance> {
  const { ownKeys, log, defaults: _, sources, ...expected } = expectation
  const asOf = given.asOf ?? systemClock.nowMs()
  // The nonce proves freshness. Compare the document's own time only if both clocks should show the present.
  const ageMsMax = isFresh && given.asOf === undefined ? freshAgeMsMax : 'any'
  const found = await verifyInstance(bytes, { ...expected, instance, nonce, asOf, ageMsMax })
  const remark = notChecked('scope', 'attested are launch and claim, not what was done in the instance since', false)
  const logged = await askLog(run, instanceFact(found), log, asOf)
  const chips = await askChipList(expected.policy, log, asOf)
  // No command that accepts an image which only the verified VM may still run.
  const stored = isOtherVm ? noStoredImages : storedImages(run, found, given, expected.policy)
  const judged = found.checks.map(check => withImageAdvice(withOwnKeyAdvice(check, ownKeys), stored))
  const checks = [...withFlags(withLog(isOtherVm ? judged.map(ofOtherVm) : judged, logged, log)), ...chips, remark]
  const shown = { ok: found.ok && verdict(checks).ok, simulated: found.simulated, checks }
  const { gateway } = expected
  const words = { found, checks, argv: run.argv, hostname: instance.hostname, sources, gateway, stored }
  const ownKey = acceptedKey(found.checks, ownKeys)
  return { found, shown, plain: instanceWords(words), logged, asOf, ownKey, isEarlier: false }
}

/** Finds manifests beside client.toml that an earlier client.toml or PASS named, for images that are not expected. */
function storedImages(
  { io: { env } }: Run,
  { launch, claim, checks }: InstanceVerdict,
  { image, gatewayPolicy }: InstanceOptions,
  policy: Policy,
): StoredImages {
  const isImageOpen = image === undefined && policy.measurements === 'any' && isFailed(checks, 'image')
  const isGatewayOpen = gatewayPolicy === undefined && isFailed(checks, 'prompts')
  return {
    image: isImageOpen && launch !== null ? manifestOfLaunch(env, launch) : null,
    gatewayImage: isGatewayOpen && claim !== null ? manifestOfGateway(env, claim) : null,
  }
}

const noStoredImages: StoredImages = { image: null, gatewayImage: null }

/** Adds to a failed check why an image that was expected earlier does not count. */
function ofOtherVm(check: Check): Check {
  if (check.outcome !== 'fail') return check
  const reason = `${check.reason}; an earlier image, in another VM than the one that was verified: its host key is new`
  return { ...check, reason }
}

/** Adds that a stored manifest is that of the image which runs. */
function withImageAdvice(check: Check, { image }: StoredImages): Check {
  if (image === null || check.name !== 'image' || check.outcome !== 'fail') return check
  return { ...check, reason: `${check.reason}; it is an image that you expected earlier, ${image}` }
}

/** Returns the log entry of its image; null if its receipt is unreadable. The log has no entries of instances. */
function instanceFact({ receipt }: InstanceVerdict): LogFact | null {
  const measurement = receipt?.statement?.image.measurement
  return measurement === undefined ? null : { kind: 'image', measurement: toHex(measurement) }
}

type Document = { readonly bytes: Uint8Array; readonly nonce: Uint8Array | 'any'; readonly isFresh: boolean }

async function documentOf(
  run: Run,
  instance: AskedInstance,
  options: InstanceOptions & Partial<Pick<VerifyOptions, 'document' | 'nonce'>>,
  defaults: ClientDefaults,
): Promise<Document> {
  const { document, nonce: known } = options
  if (document !== undefined) {
    const bytes = readInput({ path: document, param: 'document', bytesMax: instanceAttestationBytesMax })
    return { bytes, nonce: known ?? 'any', isFresh: false }
  }
  if (known !== undefined) {
    throw new InputFault('--nonce is that of a saved --document; a fresh one is drawn for each request', {
      param: 'nonce',
      remedy: 'leave out --nonce, or name the --document',
    })
  }
  const source = readService(run.io.env, options, defaults, instance.domain)
  const nonce = systemRandom(nonceBytes)
  return { bytes: await fetchAttestation(source, instance, nonce), nonce, isFresh: true }
}

async function verifyAndKeep(run: Run, instance: AskedInstance, options: VerifyOptions): Promise<void> {
  const file = knownHostsFile(run, options.knownHosts)
  const judged = await judgeInstance(run, instance, options)
  const { found, shown, logged, asOf } = judged
  const knownHost = shown.ok ? found.knownHost : null
  const kept = file === null || knownHost === null ? null : writeKnownHost(file, knownHost)
  const known_hosts = kept === null ? null : keptDocument(kept)
  const document = { ...instanceDocument(found, shown, asOf), known_hosts, ...logDocument(logged) }
  await run.result(document, instanceSummary(judged, run.paint, options.verbose === true))
  if (kept !== null) await run.hint(keptText(kept, instance.hostname))
  run.exitWith(exitCodeOfVerdict(shown, { details: found.receipt?.checks }))
}

export function instanceSummary(
  { found, shown, plain }: Pick<JudgedInstance, 'found' | 'shown' | 'plain'>,
  paint: Paint,
  verbose: boolean,
): string {
  const details = found.receipt?.checks ?? []
  return plainVerdict(shown, plain, { verbose, details, sorting: { details }, paint })
}

/**
 * Returns the document. It contains every check of the receipt; the host key's line is present only in a good verdict.
 */
export function instanceDocument(found: InstanceVerdict, shown: ShownVerdict, asOf: number) {
  const { receipt, launch, claim, hostKey, knownHost, xwingPublicKey } = found
  const statement = receipt?.statement ?? null
  return {
    ...verdictDocument(shown, { details: receipt?.checks }),
    as_of: iso(asOf),
    issued_at: statement === null ? null : iso(statement.issuedAt),
    image: statement === null ? null : { name: statement.image.name, measurement: toHex(statement.image.measurement) },
    operator_key: statement === null ? null : toHex(statement.operatorKey),
    launch,
    claim,
    host_key:
      hostKey === null ? null : { fingerprint: hostKey.fingerprint, line: shown.ok ? (knownHost?.line ?? null) : null },
    /** Null while only the key of the claim logs in. */
    login_keys: statement?.loginKeys ?? null,
    reach: statedPolicy(found),
    secrets: secretsOf(found),
    published: publishedOf(found),
    xwing_public_key: xwingPublicKey === null ? null : toBase64Url(xwingPublicKey),
    receipt: receipt === null ? null : verdictDocument(receipt),
  }
}

function keptDocument({ path, isWritten, replaced, hashed }: KnownHostsUpdate) {
  return { file: path, written: isWritten, replaced, hashed_lines: hashed }
}

function keptText({ path, isWritten, replaced, hashed }: KnownHostsUpdate, hostname: string): string {
  const older = replaced === 0 ? '' : `, instead of ${replaced === 1 ? 'an older line' : `${replaced} older lines`}`
  const text = isWritten ? `${path}: wrote the line of ${hostname}${older}` : `${path}: has this line already`
  const left = `${path}: line ${hashed.join(', ')} has this host under a hash, and ssh accepts its key too`
  return hashed.length === 0 ? text : `${text}\n${left}; remove it with ssh-keygen -R ${hostname} -f ${path}`
}

/** Returns the file to write; null if none need be written. */
function knownHostsFile({ io: { env } }: Run, given: string | boolean): string | null {
  if (given === false) return null
  if (typeof given === 'string') return given
  const home = env.HOME
  if (home !== undefined && home !== '') return join(home, '.ssh', 'known_hosts')
  throw new InputFault('there is no HOME, so that ~/.ssh/known_hosts is nowhere', {
    param: 'known-hosts',
    remedy: 'name a file by --known-hosts, or say --no-known-hosts',
  })
}

export function instanceArgument(text: string): AskedInstance {
  const instance = readInstanceHostname(text)
  if (instance !== null) return instance
  throw new InvalidArgumentError('It must be NAME.ORGANIZATION.DOMAIN, in lower case; the name has 8 characters.')
}
