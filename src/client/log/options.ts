// The transparency log as options of `verify gateway`, `instance` and `build`, its part of their documents, and its use
// instead of a pin. Effects: those of log/judge.ts; writes a proof on request.

import { InvalidArgumentError, Option } from 'commander'
import { sha256 } from '../../attest/hash.ts'
import { decodeNoteKey, type NoteKey } from '../../attest/log/note.ts'
import { parsed } from '../../attest/malformed.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { type Check, fail, isBroken, notChecked, pass } from '../../attest/verdict.ts'
import { equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { dayMs } from '../../base/time.ts'
import type { LogFact } from '../../contract/http/log-entry.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readTextInput } from '../../terminal/input-file.ts'
import { countOption } from '../../terminal/options.ts'
import { writeOutputs } from '../../terminal/output-file.ts'
import type { KnownLog } from '../../verifier/log.ts'
import { type Pin, pinCheckName } from '../../verifier/pins.ts'
import { type ClientDefaults, loadClientDefaults, logAgeDaysMax, witnessesMax } from '../client-config.ts'
import { chipListChecks, chipListOf } from '../trust/chip-list.ts'
import type { PinOptions } from '../trust/pin-options.ts'
import { loggedPinWords } from '../verdict/summary.ts'
import { type AskedLog, judgeLogged, type LogJudgement } from './judge.ts'
import { logMemory } from './memory.ts'
import type { RemoteLogOptions } from './remote.ts'

/** Options that identify a trusted log, shared with `log monitor`. */
export type KnownLogOptions = {
  logKey?: NoteKey
  witness?: readonly NoteKey[]
  witnessQuorum?: number
  logAgeDays?: number
  logCa?: string
  logState?: string
}

export type LogOptions = KnownLogOptions & {
  /** False with --no-log. */
  log?: RemoteLogOptions['url'] | string | false
  inLog?: boolean
  /** With `inLog`: requires no witness. */
  unwitnessed?: boolean
  saveProof?: string
}

/** Default limit on a checkpoint's age. Only witnesses' clocks date an entry. */
const ageDaysDefault = 7
const timeoutMs = 30_000
/** Interval between two requests to a log that does not show an entry yet. */
const waitStepMs = 1_000

export function addLogOptions(command: Command): Command {
  command
    .option(
      '--log <url|file>',
      'require an entry in this transparency log: https://HOST:PORT of service A or C, or a proof of --save-proof',
      logOption,
    )
    .option('--no-log', 'use no log, also if client.toml names one')
    .addOption(
      new Option(
        '--in-log',
        'accept every version in the log, instead of a pinned measurement; requires --witness or --unwitnessed',
      ),
    )
    .option(
      '--unwitnessed',
      'with --in-log and no --witness: accept a log that its operator can show to you alone, which proves nothing against the operator',
    )
    .option('--save-proof <file>', 'write the proof of the log, which --log accepts offline until it is too old')
  return addKnownLogOptions(command)
}

export function addKnownLogOptions(command: Command): Command {
  const hasCa = command.options.some(({ long }) => long === '--ca')
  return command
    .option('--log-key <key>', "the log's key, NAME+ID+KEY, from its operator (`strongroom log status`)", logKeyOption)
    .option(
      '--witness <key>',
      'key of a witness that you trust and the operator does not run; repeatable',
      witnessOption,
    )
    .option(
      '--witness-quorum <count>',
      'number of witnesses that must have cosigned; default 1',
      countOption(1, witnessesMax),
    )
    .option(
      '--log-age-days <count>',
      `maximum age of the last cosignature in days; default ${ageDaysDefault}`,
      countOption(1, logAgeDaysMax),
    )
    .option(
      '--log-ca <file>',
      `PEM of the authority that issued the certificate of the log's address; default: ${hasCa ? '--ca, else ' : ''}ca of client.toml`,
    )
    .option('--log-state <dir>', 'directory of the last checkpoints; default ~/.config/strongroom/logs')
}

/** Parses the address of a log, or a path. */
function logOption(text: string): URL | string {
  return /^https?:/.test(text) ? logUrlOption(text) : text
}

/** Parses https://HOST:PORT, with the log below /log, or the log's full address. */
export function logUrlOption(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  const isPlain = url?.protocol === 'https:' && url.username === '' && url.password === '' && url.search === ''
  if (url === null || !isPlain || url.hash !== '') throw new InvalidArgumentError('It must be https://HOST:PORT.')
  return url.pathname === '/' ? new URL('/log', url) : url
}

export function logKeyOption(text: string): NoteKey {
  return keyOf(text, 'ed25519', "the key of a witness; the log's own has another type")
}

export function witnessOption(text: string, before: readonly NoteKey[] = []): readonly NoteKey[] {
  const key = witnessKey(text)
  if (before.length >= witnessesMax) throw new InvalidArgumentError(`At most ${witnessesMax} witnesses may be named.`)
  return [...before, key]
}

function witnessKey(text: string): NoteKey {
  return keyOf(text, 'cosignature', 'no key of a witness: a log that cosigns itself proves nothing')
}

function keyOf(text: string, type: NoteKey['type'], otherwise: string): NoteKey {
  const key = parsed(() => decodeNoteKey(text))
  if (!key.ok) throw new InvalidArgumentError(`${key.reason}.`)
  if (key.value.type !== type) throw new InvalidArgumentError(`It is ${otherwise}.`)
  return key.value
}

export type LogQuestion = Omit<AskedLog, 'asOf'> & {
  readonly saveProof: string | undefined
  /** The log replaces the pins of a measurement and of an allowlist. */
  readonly inLog: boolean
  /** The log does so without a witness, because of --unwitnessed. */
  readonly isUnwitnessed: boolean
  /** How long to wait for an entry that the log does not show yet. Default: 0. */
  readonly waitMs?: number
}

/**
 * Reads the options. Null if no log is used. An option takes precedence over its default in client.toml. Throws Fault
 * invalid_request for options that contradict each other.
 */
export async function readLogOptions(
  run: Run,
  given: LogOptions & { readonly ca?: string },
): Promise<LogQuestion | null> {
  const defaults = await loadClientDefaults(run.io.env)
  const ofFile = defaultLog(defaults)
  const { log = ofFile.log } = given
  const { saveProof } = given
  if (log === undefined || log === false) {
    refuseStray(given, log === undefined ? ofFile : {})
    return null
  }
  const options = { ...ofFile, ...definedOf(given) }
  const { logKey, inLog = false } = options
  if (logKey === undefined) {
    const remedy = "name the key that the operator gave you: a log under a key of its own choice is anybody's"
    throw new InputFault('--log goes with --log-key', { param: 'log-key', remedy })
  }
  const [ofLog, ofService] = given.log === undefined ? [defaults.ca, given.ca] : [given.ca, defaults.ca]
  const caPath = options.logCa ?? ofLog ?? ofService
  const source = typeof log === 'string' ? { file: log } : remoteOf(log, caPath)
  const memory = logMemory(run.io.env, options.logState)
  const known = knownLog(logKey, options)
  const isUnwitnessed = readUnwitnessed(options, known)
  // Beside the pins of a policy, a log can only add failures, so it needs no witness.
  return { source, known: { ...known, unwitnessed: isUnwitnessed || !inLog }, memory, saveProof, inLog, isUnwitnessed }
}

/** Throws Fault invalid_request for the first option that has no effect without a log. */
function refuseStray(given: LogOptions, ofFile: LogOptions): void {
  const { inLog, unwitnessed, saveProof, logKey, witness, witnessQuorum, logAgeDays, logCa, logState } = given
  const named = { 'in-log': inLog, unwitnessed, 'save-proof': saveProof, 'log-key': logKey, witness, 'log-ca': logCa }
  const more = { 'witness-quorum': witnessQuorum, 'log-age-days': logAgeDays, 'log-state': logState }
  const [stray] = Object.entries({ ...named, ...more }).find(([, value]) => value !== undefined) ?? []
  if (stray !== undefined) throw new InputFault(`--${stray} requires --log`, { param: stray, remedy: 'name the --log' })
  const field = ofFile.inLog === true ? 'in_log' : ofFile.unwitnessed === true ? 'unwitnessed' : null
  if (field !== null)
    throw new InputFault(`client.toml: ${field} requires log`, {
      remedy: 'name the log there, or --no-log',
    })
}

/**
 * Reports whether the log may replace the pins without a witness. Throws Fault invalid_request if --in-log has neither
 * --witness nor --unwitnessed, or --unwitnessed has no effect.
 */
function readUnwitnessed({ inLog, unwitnessed }: LogOptions, { witnesses }: KnownLog): boolean {
  const hasWitness = witnesses.length > 0
  if (unwitnessed === true && (hasWitness || inLog !== true)) {
    const problem = hasWitness ? 'contradicts --witness' : 'requires --in-log'
    throw new InputFault(`--unwitnessed ${problem}`, {
      param: 'unwitnessed',
      remedy: 'leave out --unwitnessed (unwitnessed of client.toml)',
    })
  }
  if (inLog !== true || hasWitness) return false
  if (unwitnessed === true) return true
  throw new InputFault("--in-log requires --witness: the log's operator can make a private tree for you alone", {
    param: 'witness',
    remedy:
      "name the key of a witness that the log's operator does not run, pin a measurement by --policy instead of --in-log, or accept the operator's word with --unwitnessed",
  })
}

/** Removes undefined options, which would hide a default. */
function definedOf(given: LogOptions): LogOptions {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

/** Reads the log options of client.toml. Fault invalid_request. */
function defaultLog(defaults: ClientDefaults): LogOptions & { readonly log?: URL } {
  const { log, log_key, witness, witness_quorum, log_age_days, in_log, unwitnessed, log_ca, log_state } = defaults
  return {
    ...(log === undefined ? {} : { log: ofFile('log', () => logUrlOption(log)) }),
    ...(log_key === undefined ? {} : { logKey: ofFile('log_key', () => logKeyOption(log_key)) }),
    ...(witness === undefined ? {} : { witness: ofFile('witness', () => witness.map(text => witnessKey(text))) }),
    ...(witness_quorum === undefined ? {} : { witnessQuorum: witness_quorum }),
    ...(log_age_days === undefined ? {} : { logAgeDays: log_age_days }),
    ...(in_log === undefined ? {} : { inLog: in_log }),
    ...(unwitnessed === undefined ? {} : { unwitnessed }),
    ...(log_ca === undefined ? {} : { logCa: log_ca }),
    ...(log_state === undefined ? {} : { logState: log_state }),
  }
}

function ofFile<T>(field: keyof ClientDefaults, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error
    throw new InputFault(`client.toml: ${field}: ${error.message}`, { remedy: 'correct the file' })
  }
}

/** Returns the options of `log monitor`. Defaults from client.toml apply only to the log named there. */
export async function monitorOptions(run: Run, url: URL, given: KnownLogOptions): Promise<KnownLogOptions> {
  const defaults = await loadClientDefaults(run.io.env)
  const { log, logCa = defaults.ca, ...ofFile } = defaultLog(defaults)
  const ofCa = logCa === undefined ? {} : { logCa }
  return log?.href === url.href ? { ...ofFile, ...ofCa, ...definedOf(given) } : given
}

export function remoteOf(url: URL, caPath: string | undefined): RemoteLogOptions {
  const ca = caPath === undefined ? undefined : readTextInput({ path: caPath, param: 'log-ca', bytesMax: MIB })
  return { url, ca, timeoutMs }
}

/**
 * Builds the trusted log. Throws Fault invalid_request for witnesses that are not independent, and for limits that
 * cannot be met.
 */
export function knownLog(key: NoteKey, options: KnownLogOptions): KnownLog {
  const { witness = [], witnessQuorum = 1, logAgeDays = ageDaysDefault } = options
  const limits = { 'witness-quorum': options.witnessQuorum, 'log-age-days': options.logAgeDays }
  const [stray] = Object.entries(limits).find(([, value]) => value !== undefined) ?? []
  if (witness.length === 0 && stray !== undefined) {
    throw new InputFault(`--${stray} requires --witness`, {
      param: stray,
      remedy: 'name a witness, or leave it out (witness_quorum, log_age_days of client.toml)',
    })
  }
  for (const [at, { name, publicKey }] of witness.entries()) {
    const isSame = (other: NoteKey) => equalConstantTime(other.publicKey, publicKey)
    const whose = isSame(key) ? "the log's own" : witness.slice(0, at).some(isSame) ? 'that of another one' : null
    if (whose === null) continue
    throw new InputFault(`--witness ${name}: its key is ${whose}`, {
      param: 'witness',
      remedy: 'name witnesses that are independent of the log and of each other, each once',
    })
  }
  if (witness.length > 0 && witnessQuorum > witness.length) {
    throw new InputFault(`--witness-quorum ${witnessQuorum}: ${witness.length} witnesses are named`, {
      param: 'witness-quorum',
      remedy: 'name more witnesses, or ask for fewer',
    })
  }
  return { key, witnesses: witness, quorum: witness.length === 0 ? 0 : witnessQuorum, ageMsMax: logAgeDays * dayMs }
}

/** With --in-log, removes the pins that the log replaces. */
export function loggedPins<Options extends PinOptions>(options: Options, log: LogQuestion | null): Options {
  return log?.inLog === true ? { ...options, anyMeasurement: true, anyAllowlist: true } : options
}

export async function askLog(
  run: Run,
  fact: LogFact | null,
  question: LogQuestion | null,
  asOf: number,
): Promise<LogJudgement | null> {
  if (question === null) return null
  const { saveProof, waitMs = 0 } = question
  const endMs = systemClock.monotonicMs() + waitMs
  let judged = await judgeLogged(fact, { ...question, asOf })
  if (judged.isAbsent && waitMs > 0) await run.hint('the log does not show it yet: waiting for a witness')
  while (judged.isAbsent && judged.forkFile === null && systemClock.monotonicMs() < endMs) {
    await systemClock.sleep(waitStepMs)
    judged = await judgeLogged(fact, { ...question, asOf })
  }
  if (saveProof !== undefined && judged.proof !== null)
    writeOutputs([{ path: saveProof, param: 'save-proof', bytes: utf8(judged.proof) }], { replaces: true })
  if (judged.forkFile !== null)
    await run.hint(`both checkpoints, which prove the fork to everybody: ${judged.forkFile}`)
  return judged
}

/** Returns the check of the policy's list of chips, which the log, if one is used, must have; none without a list. */
export async function askChipList(
  policy: Pick<Policy, 'chipIds'>,
  question: LogQuestion | null,
  asOf: number,
): Promise<readonly Check[]> {
  const list = chipListOf(policy)
  // A proof of --save-proof has one entry, which is not the list's.
  if (list === null || question === null || 'file' in question.source) return chipListChecks(policy, asOf)
  const { checks, place } = await judgeLogged(
    { kind: 'chip-list', sha256: toHex(sha256(list.bytes)) },
    { ...question, asOf },
  )
  const broken = checks.find(isBroken)
  const words = broken?.reason ?? `entry ${place?.index} of ${place?.size} in the transparency log`
  const listed = chipListChecks(policy, asOf, { ok: broken === undefined, words })
  // A log that does not respond is no list that the operator left out.
  if (broken?.name !== 'log-connection') return listed
  return [...listed.map(({ name, reason }) => notChecked(name, reason, true)), fail(`chip-list/${broken.name}`, words)]
}

/** Adds the log's checks to those of a verdict, and marks requirements that the log satisfies instead of a pin. */
export function withLog(checks: readonly Check[], judged: LogJudgement | null, log: LogQuestion | null): Check[] {
  if (judged === null || log === null) return [...checks]
  const names = LOGGED_PINS.map(pinCheckName)
  const pinned = checks.map(check => {
    if (!log.inLog || check.outcome !== 'not-checked' || !names.includes(check.name)) return check
    const { place, ok } = judged
    const where = place === null ? '' : `entry ${place.index} of ${place.size}`
    if (ok && place !== null && log.isUnwitnessed)
      return notChecked(check.name, `accepted ${where} of an unwitnessed log: you asked with --unwitnessed`, false)
    return ok && place !== null
      ? pass(check.name, `${loggedPinWords}, ${where}`)
      : notChecked(check.name, 'it is not in the transparency log, which --in-log requires', true)
  })
  return [...pinned, ...judged.checks]
}

const LOGGED_PINS: readonly Pin[] = ['measurement', 'allowlist']

/** Returns `log` of the document; empty if no log was used. */
export function logDocument(judged: LogJudgement | null) {
  if (judged === null) return {}
  const { place, forkFile } = judged
  return { log: { index: place?.index ?? null, size: place?.size ?? null, fork_evidence: forkFile } }
}
