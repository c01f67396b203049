// strongroom events: who asked the daemon for which change, and what became of it. Effects: requests to the daemon.

import { systemClock } from '../../base/clock.ts'
import {
  type AdminCommand,
  AdminCommandList,
  commandListMax,
  type HostActionList,
} from '../../contract/admin/events.ts'
import { InputFault } from '../../terminal/exit.ts'
import { countOption } from '../../terminal/options.ts'
import { json, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'

type Options = { follow?: boolean; since?: string; actor?: string; limit: number }

type Filter = { since: number | undefined; actor: string | undefined }

const pollMs = 1_000
/** A command without a result for so long does not hold up those after it. */
const settledMs = 60_000

export function addEvents(program: Command): void {
  program
    .command('events')
    .description(
      'show the record of commands: each change with its user and result; in a fleet also changes by hosts that concern all. `strongroom help operators` explains it',
    )
    .option('--follow', 'print new commands as they end, until interrupted; with --json one document a line')
    .option('--since <time>', 'oldest time: a time in UTC (2026-11-25T09:00Z), a day, or an age (90s, 30m, 24h, 7d)')
    .option('--actor <name>', 'only of one administrator: a name, `root`, or "uid 1001"')
    .option('--limit <n>', `the newest n, at most ${commandListMax}`, countOption(1, commandListMax), 50)
    .examples('strongroom events --since 24h', 'strongroom events --follow --json')
    .runs(async (run, options: Options) => {
      const since = options.since === undefined ? undefined : sinceMs(options.since, systemClock.nowMs())
      const query = { since, actor: options.actor, limit: options.limit }
      const request = { path: '/events', query, response: AdminCommandList }
      if (options.follow === true) await follow(run, (await run.client().request(request)).commands, query)
      else await run.show(request, ({ commands, fleet }, paint) => listText(commands, paint) + fleetText(fleet, paint))
    })
}

async function follow(run: Run, first: readonly AdminCommand[], query: Filter) {
  let after = (first[0]?.seq ?? 1) - 1
  const print = async (commands: readonly AdminCommand[]) => {
    for (const row of commands) {
      const isRunning = row.result === null && systemClock.nowMs() - Date.parse(row.at) < settledMs
      // A command's result is printed with it, so later ones wait.
      if (isRunning) return
      after = row.seq
      await run.io.stdout(run.json ? `${JSON.stringify(row)}\n` : `${rowOf(row, run.paint).join('  ')}\n`)
    }
  }
  await print(first)
  for (;;) {
    await systemClock.sleep(pollMs)
    const { commands } = await run
      .client()
      .request({ path: '/events', query: { ...query, after, limit: commandListMax }, response: AdminCommandList })
    await print(commands)
  }
}

function listText(commands: readonly AdminCommand[], paint: Paint): string {
  return table(
    paint,
    ['TIME', 'ACTOR', 'ROLE', 'COMMAND', 'RESULT', 'ARGUMENTS'],
    commands.map(row => rowOf(row, paint)),
  )
}

/** The recorded actions of the hosts of the fleet; empty on a host by itself. */
function fleetText(fleet: HostActionList | undefined, paint: Paint): string {
  if (fleet === undefined) return ''
  const rows = fleet.actions.map(({ at, host, database_role: role, action, subject, organization, detail }) => [
    timeText(at),
    host ?? `${role} (owner)`,
    action,
    oneLine(subject),
    organization ?? '-',
    oneLine(argumentsText(detail)),
  ])
  const list = table(paint, ['TIME', 'HOST', 'DID', 'WHAT', 'ORGANIZATION', 'DETAIL'], rows)
  return `\nHosts of the fleet:\n${list}${fleet.problem === null ? '' : `${paint.bad(fleet.problem)}\n`}`
}

function rowOf(row: AdminCommand, paint: Paint): string[] {
  const { result, times, role, actor, operation } = row
  const word = result === null ? 'runs' : result === 'ok' ? 'ok' : paint.bad(result)
  return [
    timeText(row.at),
    row.socket === 'console' ? `${actor} (console)` : actor,
    role ?? '-',
    operation,
    times > 1 ? `${word} (${times} times)` : word,
    oneLine(argumentsText(row.arguments)),
  ]
}

function argumentsText(asked: AdminCommand['arguments']): string {
  return Object.entries(asked)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : json(value).replaceAll(/\s+/g, ' ').trim()}`)
    .join(' ')
}

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** An InputFault for what is no time. */
export function sinceMs(text: string, nowMs: number): number {
  const age = /^(\d{1,6})([smhd])$/.exec(text)
  if (age !== null) return Math.max(0, nowMs - Number(age[1]) * UNITS[age[2] as keyof typeof UNITS])
  const isTime = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?Z)?$/.test(text)
  const atMs = isTime ? Date.parse(text) : Number.NaN
  if (Number.isNaN(atMs)) {
    throw new InputFault(`--since ${JSON.stringify(text)} is no time`, {
      remedy: 'give a time in UTC like 2026-11-25T09:00Z, a day like 2026-11-25, or an age like 30m or 7d',
    })
  }
  return atMs
}
