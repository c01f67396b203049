// The transparency log as options of `verify gateway`, `instance` and `build`, its part of their documents, and the log
// in the place of a pin. Effects: those of log/judge.ts; writes a proof where the caller asks for it.

import { InvalidArgumentError, Option } from 'commander'
import { decodeNoteKey, type NoteKey } from '../../attest/log/note.ts'
import { parsed } from '../../attest/malformed.ts'
import { type Check, notChecked, pass } from '../../attest/verdict.ts'
import { utf8 } from '../../base/bytes.ts'
import type { LogFact } from '../../contract/http/log-entry.ts'
import type { KnownLog } from '../../verifier/log.ts'
import { type Pin, pinCheckName } from '../../verifier/pins.ts'
import type { Command, Run } from '../cli.ts'
import { InputFault } from '../exit.ts'
import { MIB, readTextInput } from '../input-file.ts'
import { countOption } from '../options.ts'
import { writeOutputs } from '../output-file.ts'
import type { PinOptions } from '../verify/pin-options.ts'
import { type AskedLog, judgeLogged, type LogJudgement } from './judge.ts'
import { logMemory } from './memory.ts'
import type { RemoteLogOptions } from './remote.ts'

/** Options that say which log is believed, of `log monitor` as well. */
export type KnownLogOptions = {
  logKey?: NoteKey
  witness?: readonly NoteKey[]
  witnessQuorum?: number
  logCa?: string
  logState?: string
}

export type LogOptions = KnownLogOptions & {
  log?: RemoteLogOptions['url'] | string
  inLog?: boolean
  saveProof?: string
}

/** An entry says when it was made by no clock but a witness's. */
const ageMsMax = 7 * 24 * 3_600_000
const timeoutMs = 30_000
const witnessesMax = 16

export function addLogOptions(command: Command): Command {
  command
    .option(
      '--log <url|file>',
      'the transparency log that it must be in: https://HOST:PORT of service A or C, or a proof that --save-proof wrote',
      logOption,
    )
    .addOption(
      new Option('--in-log', 'the log in the place of a measurement: any version will do that everybody can see'),
    )
    .option('--save-proof <file>', "write the log's proof, which --log takes without the network for seven days")
  return addKnownLogOptions(command)
}

export function addKnownLogOptions(command: Command): Command {
  return command
    .option('--log-key <key>', "the log's key, NAME+ID+KEY, from its operator (`strongroom log status`)", logKeyOption)
    .option(
      '--witness <key>',
      'key of a witness that you trust and the operator does not run; may be repeated',
      witnessOption,
    )
    .option('--witness-quorum <count>', 'how many of them must have cosigned', countOption(1, witnessesMax), 1)
    .option('--log-ca <file>', "PEM of the authority that issued the certificate of the log's address; default: --ca")
    .option('--log-state <dir>', 'where the last checkpoint is remembered; default ~/.config/strongroom/logs')
}

/** The address of a log, or a path. */
function logOption(text: string): URL | string {
  return /^https?:/.test(text) ? logUrlOption(text) : text
}

/** https://HOST:PORT, where a log stands below /log; or its whole address. */
export function logUrlOption(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  const isPlain = url?.protocol === 'https:' && url.username === '' && url.password === '' && url.search === ''
  if (url === null || !isPlain || url.hash !== '') throw new InvalidArgumentError('It must be https://HOST:PORT.')
  return url.pathname === '/' ? new URL('/log', url) : url
}

function logKeyOption(text: string): NoteKey {
  return keyOf(text, 'ed25519', "the key of a witness; the log's own has another type")
}

function witnessOption(text: string, before: readonly NoteKey[] = []): readonly NoteKey[] {
  const key = keyOf(text, 'cosignature', 'no key of a witness: a log that cosigns itself proves nothing')
  if (before.length >= witnessesMax) throw new InvalidArgumentError(`At most ${witnessesMax} witnesses may be named.`)
  return [...before, key]
}

function keyOf(text: string, type: NoteKey['type'], otherwise: string): NoteKey {
  const key = parsed(() => decodeNoteKey(text))
  if (!key.ok) throw new InvalidArgumentError(`${key.reason}.`)
  if (key.value.type !== type) throw new InvalidArgumentError(`It is ${otherwise}.`)
  return key.value
}

export type LogQuestion = Omit<AskedLog, 'asOf'> & { readonly saveProof: string | undefined }

/** Null: no log is asked. Fault invalid_request: options that say nothing without others. */
export function readLogOptions(run: Run, options: LogOptions & { readonly ca?: string }): LogQuestion | null {
  const { log, logKey, inLog, saveProof, witness } = options
  const named = { 'in-log': inLog, 'save-proof': saveProof, 'log-key': logKey, witness, 'log-ca': options.logCa }
  const [stray] = Object.entries(named).find(([, value]) => value !== undefined) ?? []
  if (log === undefined) {
    if (stray === undefined) return null
    throw new InputFault(`--${stray} says nothing without --log`, { param: stray, remedy: 'name the --log' })
  }
  if (logKey === undefined) {
    const remedy = "name the key that the operator gave you: a log under a key of its own choice is anybody's"
    throw new InputFault('--log goes with --log-key', { param: 'log-key', remedy })
  }
  const source = typeof log === 'string' ? { file: log } : remoteOf(log, options.logCa ?? options.ca)
  const memory = logMemory(run.io.env, options.logState)
  return { source, known: knownLog(logKey, options), memory, saveProof }
}

export function remoteOf(url: URL, caPath: string | undefined): RemoteLogOptions {
  const ca = caPath === undefined ? undefined : readTextInput({ path: caPath, param: 'log-ca', bytesMax: MIB })
  return { url, ca, timeoutMs }
}

export function knownLog(key: NoteKey, { witness = [], witnessQuorum = 1 }: KnownLogOptions): KnownLog {
  if (witness.length > 0 && witnessQuorum > witness.length) {
    throw new InputFault(`--witness-quorum ${witnessQuorum}: ${witness.length} witnesses are named`, {
      param: 'witness-quorum',
      remedy: 'name more witnesses, or ask for fewer',
    })
  }
  return { key, witnesses: witness, quorum: witness.length === 0 ? 0 : witnessQuorum, ageMsMax }
}

/** With --in-log these pins are the log's to meet. */
export function loggedPins(options: LogOptions & PinOptions): PinOptions {
  return options.inLog === true ? { ...options, anyMeasurement: true, anyAllowlist: true } : options
}

export async function askLog(
  run: Run,
  fact: LogFact | null,
  question: LogQuestion | null,
  asOf: number,
): Promise<LogJudgement | null> {
  if (question === null) return null
  const judged = await judgeLogged(fact, { ...question, asOf })
  const { saveProof } = question
  if (saveProof !== undefined && judged.proof !== null)
    writeOutputs([{ path: saveProof, param: 'save-proof', bytes: utf8(judged.proof) }], { replaces: true })
  if (judged.forkFile !== null)
    await run.hint(`both checkpoints, which prove the fork to everybody: ${judged.forkFile}`)
  return judged
}

/** The checks of a verdict and those of the log; what the log meets in the place of a pin is said so. */
export function withLog(checks: readonly Check[], judged: LogJudgement | null, { inLog }: LogOptions): Check[] {
  if (judged === null) return [...checks]
  const names = LOGGED_PINS.map(pinCheckName)
  const pinned = checks.map(check => {
    if (inLog !== true || check.outcome !== 'not-checked' || !names.includes(check.name)) return check
    const { place, ok } = judged
    return ok && place !== null
      ? pass(check.name, `in the transparency log, entry ${place.index} of ${place.size}`)
      : notChecked(check.name, 'the transparency log, which --in-log asks for, does not have it', true)
  })
  return [...pinned, ...judged.checks]
}

const LOGGED_PINS: readonly Pin[] = ['measurement', 'allowlist']

/** `log` of the document; absent where none was asked. */
export function logDocument(judged: LogJudgement | null) {
  if (judged === null) return {}
  const { place, forkFile } = judged
  return { log: { index: place?.index ?? null, size: place?.size ?? null, fork_evidence: forkFile } }
}
