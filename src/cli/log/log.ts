// strongroom log: the transparency log of an appliance, for its operator and for everybody else. Effects: requests to
// the daemon; `monitor` uses the network and the memory of earlier visits alone.

import { sha256 } from '../../attest/hash.ts'
import { decodeNoteKey, encodeNoteKey, type NoteKey } from '../../attest/log/note.ts'
import { Malformed } from '../../attest/malformed.ts'
import { parsePolicy } from '../../attest/policy/policy.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { AdminLog, AdminLogEntries, logEntryListMax } from '../../contract/admin/log.ts'
import { readLogEntry } from '../../contract/http/log-entry.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import type { Command, Run } from '../cli.ts'
import { EXIT, InputFault } from '../exit.ts'
import { KIB, MIB, readInput, readingInput, readJsonInput, readTextInput } from '../input-file.ts'
import { countOption } from '../options.ts'
import { dash, fields, oneLine, type Paint, table, timeText } from '../render.ts'
import { type LogMemory, logMemory } from './memory.ts'
import { type Visit, visitLog } from './monitor.ts'
import {
  addKnownLogOptions,
  type KnownLogOptions,
  knownLog,
  logUrlOption,
  monitorOptions,
  remoteOf,
} from './options.ts'
import { LogUnreachable, RemoteLog } from './remote.ts'

export function addLog(program: Command): void {
  const log = program
    .command('log')
    .description('the transparency log: status, show, cosign, publish-policy of this appliance; monitor of any')
    .examples('strongroom log status', 'strongroom log monitor https://instances.example:8441 --log-key KEY --follow')
  log
    .command('status')
    .description('show the key and size of the log, how much of it is public, and its witnesses')
    .examples('strongroom log status', 'strongroom log status --json')
    .runs(async run => {
      await run.show({ path: '/log', response: AdminLog }, statusText)
    })
  log
    .command('show')
    .description('show entries; the newest by default')
    .option('--from <index>', 'first entry to show', countOption(0, Number.MAX_SAFE_INTEGER))
    .option('--limit <count>', `number of entries, at most ${logEntryListMax}`, countOption(1, logEntryListMax), 20)
    .examples('strongroom log show', 'strongroom log show --from 0 --limit 256 --json')
    .runs(async (run, query: { from?: number; limit: number }) => {
      await run.show({ path: '/log/entries', query, response: AdminLogEntries }, entriesText)
    })
  log
    .command('cosign')
    .description("add a witness's cosignature: a signed note with the checkpoint of `log status --json`")
    .argument('<file>', 'the note with the cosignature; - for standard input')
    .examples('strongroom log cosign cosigned.txt')
    .runs(async (run, path: string) => {
      const note = readTextInput({ path, param: 'file', bytesMax: 32 * KIB })
      await run.show({ method: 'POST', path: '/log/cosign', body: { note }, response: AdminLog }, statusText)
    })
  log
    .command('publish-policy')
    .description('add the digest of a policy that you publish to the log, so that every version of it is visible')
    .argument('<file>', 'JSON as in `verify policy-schema`')
    .examples('strongroom log publish-policy policy.json')
    .runs(async (run, path: string) => {
      const input = { path, param: 'file', bytesMax: MIB }
      await readingInput(path, () => parsePolicy(readJsonInput(input)))
      const body = { sha256: toHex(sha256(readInput(input))) }
      await run.show({ method: 'POST', path: '/log/policy', body, response: AdminLog }, statusText)
    })
  addMonitor(log)
}

type MonitorOptions = KnownLogOptions & { follow?: boolean; all?: boolean; interval: number }

function addMonitor(log: Command): void {
  const command = log
    .command('monitor')
    .description('read every new entry of a log, and check that it is append-only; needs no daemon')
    .argument('<url>', 'https://HOST:PORT of service A or C, or the address of the log', logUrlOption)
    .option('--follow', 'continue until interrupted; with --json one document a line')
    .option('--interval <seconds>', 'time between two visits', countOption(1, 86_400), 60)
    .option('--all', 'show every entry from the first, also those seen before')
  addKnownLogOptions(command)
    .examples(
      'strongroom log monitor https://instances.example:8441 --log-key KEY --witness KEY',
      'strongroom log monitor https://instances.example:8441 --log-ca ca.pem --follow --json',
    )
    .runs(monitor)
}

async function monitor(run: Run, url: URL, given: MonitorOptions): Promise<void> {
  const options = { ...given, ...(await monitorOptions(run, url, given)) }
  const memory = logMemory(run.io.env, options.logState)
  const remote = remoteOf(url, options.logCa)
  let key: NoteKey | null = null
  let isFirst = true
  for (;;) {
    const visit = await visited(async () => {
      key ??= options.logKey ?? (await keyAtFirst(run, new RemoteLog(remote), { url, memory }))
      const known = knownLog(key, options)
      const all = isFirst && options.all === true
      return await visitLog({ remote: new RemoteLog(remote), known, memory, all, nowMs: systemClock.nowMs() })
    })
    await show(run, visit, options.follow === true)
    isFirst = false
    if (options.follow !== true) {
      if (visit.isUnreachable) run.exitWith(EXIT.unreachable)
      else if (visit.problems.length > 0) run.exitWith(EXIT.failed)
      return
    }
    await systemClock.sleep(options.interval * 1000)
  }
}

type Visited = Visit & { readonly isUnreachable: boolean }

/** A visit that failed is one with a problem. Faults: invalid_request. */
async function visited(work: () => Promise<Visit>): Promise<Visited> {
  try {
    return { ...(await work()), isUnreachable: false }
  } catch (error) {
    const isUnreachable = error instanceof LogUnreachable
    if (!isUnreachable && !(error instanceof Malformed)) throw error
    const nothing = { origin: '', size: 0, entries: [], witnesses: [], remarks: [], forkFile: null }
    return { ...nothing, problems: [oneLine(messageOf(error))], isUnreachable }
  }
}

async function show(run: Run, visit: Visited, isFollowing: boolean): Promise<void> {
  const { origin, size, entries, witnesses, problems, remarks, forkFile } = visit
  const document = {
    ok: problems.length === 0,
    origin,
    size,
    entries: entries.map(({ index, entry }) => ({ index, entry })),
    witnesses,
    problems,
    remarks,
    fork_evidence: forkFile,
  }
  if (run.json && isFollowing) await run.io.stdout(`${JSON.stringify(document)}\n`)
  else if (isFollowing && problems.length === 0 && entries.length === 0) return
  else await run.result(document, visitText(visit, run.paint))
}

function visitText({ origin, size, entries, witnesses, problems, remarks, forkFile }: Visited, paint: Paint): string {
  const lines = [
    ...entries.map(({ index, entry }) => `${index}  ${entryText(entry)}`),
    ...(origin === '' ? [] : [`${origin}: ${size} entries, ${entries.length} new`]),
    ...witnesses.map(({ name, at }) => `witnessed by ${name} ${timeText(at)}`),
    ...remarks,
    ...problems.map(problem => `${paint.bad('FAIL')} ${problem}`),
    ...(forkFile === null ? [] : [`both checkpoints, which prove it to everybody: ${forkFile}`]),
  ]
  return lines.map(line => `${line}\n`).join('')
}

/** An entry of the appliance's own; one of another release as it stands. */
function rowText(entry: string): string {
  const known = readLogEntry(utf8(entry))
  return known === null ? oneLine(entry) : entryText(known)
}

function entryText(entry: Readonly<Record<string, unknown>>): string {
  const { kind, format: _, ...digests } = entry
  return `${kind}  ${Object.entries(digests)
    .map(([name, value]) => `${name} ${value}`)
    .join('  ')}`
}

/** The key that the log named at the first visit, for whoever got none from its operator. */
async function keyAtFirst(
  run: Run,
  remote: RemoteLog,
  { url, memory }: { readonly url: URL; readonly memory: LogMemory | null },
): Promise<NoteKey> {
  const path = memory === null ? null : `${memory.directory}/${toHex(sha256(utf8(url.href)).slice(0, 16))}.key`
  const kept = path === null ? null : readTextOrNull(path)
  const key = await readingInput(kept === null ? url.host : `${path}`, async () =>
    decodeNoteKey((kept ?? (await remote.key())).trim()),
  )
  if (key.type !== 'ed25519')
    throw new InputFault(`${url.host}: its key is no key of a log`, { remedy: 'name the --log-key' })
  if (kept === null) {
    await run.hint(`no --log-key: from now on the log must have the key that it names itself, ${encodeNoteKey(key)}`)
    if (path !== null && memory !== null) {
      ensureDir(memory.directory, { mode: 0o700 })
      writeFileAtomic(path, `${encodeNoteKey(key)}\n`, { mode: 0o600 })
    }
  }
  return key
}

function statusText({ key, size, shown, witnesses }: AdminLog, paint: Paint): string {
  const rows = witnesses.map(({ name, size: seen, cosigned_at, problem }) => [
    name,
    dash(seen),
    timeText(cosigned_at),
    oneLine(problem ?? ''),
  ])
  const facts = fields(paint, [
    ['key', key ?? 'no log has begun'],
    ['entries', `${size}`],
    ['shown', shown === size ? 'all' : `${shown}; the rest once a witness has cosigned it`],
    [
      'witnesses',
      witnesses.length === 0 ? "none: it is this host's word alone (log.witnesses)" : `${witnesses.length}`,
    ],
  ])
  return rows.length === 0 ? facts : `${facts}${table(paint, ['WITNESS', 'SIZE', 'COSIGNED', 'PROBLEM'], rows)}`
}

function entriesText({ entries }: AdminLogEntries, paint: Paint): string {
  return table(
    paint,
    ['INDEX', 'TIME', 'ENTRY'],
    entries.map(({ index, at, entry }) => [`${index}`, timeText(at), rowText(entry)]),
  )
}
