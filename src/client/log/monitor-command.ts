// strongroom log monitor: shows every new entry of any appliance's log. Effects: the network, and the memory of earlier
// visits.

import { sha256 } from '../../attest/hash.ts'
import { decodeNoteKey, encodeNoteKey, type NoteKey } from '../../attest/log/note.ts'
import { Malformed } from '../../attest/malformed.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { EXIT, InputFault } from '../../terminal/exit.ts'
import { readingInput } from '../../terminal/input-file.ts'
import { countOption } from '../../terminal/options.ts'
import { oneLine, type Paint, timeText } from '../../terminal/render.ts'
import { entryText } from './entry-text.ts'
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

type MonitorOptions = KnownLogOptions & { follow?: boolean; all?: boolean; interval: number }

export function addMonitor(log: Command): void {
  const command = log
    .command('monitor')
    .description('read every new entry of a log, and check that it is append-only; needs no daemon')
    .argument('<url>', 'https://HOST:PORT of service A or C, or the address of the log', logUrlOption)
    .option('--follow', 'continue until interrupted; with --json one document a line')
    .option('--interval <seconds>', 'time between two visits', countOption(1, 86_400), 60)
    .option('--all', 'show every entry from the first, also those seen before')
  addKnownLogOptions(command)
    .addHelpText(
      'after',
      '\nWithout --witness the exit code 0 covers no witness: the log may show other clients another tree.',
    )
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

/** Reports a failed visit as one with a problem. Throws Fault invalid_request. */
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

/** Returns the key that the log named at the first visit, for users without a key from its operator. */
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
