// strongroom log: the transparency log of an appliance, for its operator; `monitor` is everybody's. Effects: requests
// to the daemon.

import { sha256 } from '../../attest/hash.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { entryText } from '../../client/log/entry-text.ts'
import { addMonitor } from '../../client/log/monitor-command.ts'
import { readPolicyDocument } from '../../client/trust/trust-options.ts'
import { AdminLog, AdminLogEntries, logEntryListMax } from '../../contract/admin/log.ts'
import { readLogEntry } from '../../contract/http/log-entry.ts'
import { KIB, MIB, readInput, readingInput, readJsonInput, readTextInput } from '../../terminal/input-file.ts'
import { countOption } from '../../terminal/options.ts'
import { dash, fields, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'

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
      await readingInput(path, () => readPolicyDocument(readJsonInput(input, { hasComments: true })))
      const body = { sha256: toHex(sha256(readInput(input))) }
      await run.show({ method: 'POST', path: '/log/policy', body, response: AdminLog }, statusText)
    })
  addMonitor(log)
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

/** An entry of the appliance's own; one of another release as it stands. */
function rowText(entry: string): string {
  const known = readLogEntry(utf8(entry))
  return known === null ? oneLine(entry) : entryText(known)
}
