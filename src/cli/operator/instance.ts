// strongroom instance: the instances of all organizations, as the operator sees them. Effects: requests to the daemon.

import { existsSync } from 'node:fs'
import type { Static } from '@sinclair/typebox'
import { Option } from 'commander'
import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { harmless } from '../../base/harmless.ts'
import {
  type AdminEvent,
  AdminEventList,
  AdminInstance,
  AdminInstanceList,
  consoleTailBytesMax,
} from '../../contract/admin/admin.ts'
import { type AdminEgressRaise, egressLimitBytesMax } from '../../contract/admin/egress.ts'
import { LISTED_STATUSES, listedCountDefault, listedCountMax } from '../../contract/admin/instance-query.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { bytesOption, countOption, timeOption } from '../../terminal/options.ts'
import { bytesText, dash, fields, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'
import { printStream } from './print-stream.ts'

const tailBytesDefault = 65_536

export function addInstance(program: Command): void {
  const instance = program
    .command('instance')
    .description('instances: list, show, delete, console, logs, egress')
    .examples('strongroom instance list', 'strongroom instance show acme/k3v9x2ab')

  instance
    .command('list')
    .description('list instances, including terminated ones while their records are kept')
    .option('--org <slug>', 'only those of this organization')
    .addOption(
      new Option(
        '--status <status>',
        'only those in this state; current: not terminated; living: neither failed nor terminated',
      ).choices(LISTED_STATUSES),
    )
    .option('--name <text>', 'only those whose names begin with this')
    .option('--since <time>', 'only those created at this time in UTC or later, like 2026-11-25T00:00:00Z', timeOption)
    .option('--limit <n>', 'at most this many, newest first', countOption(1, listedCountMax), listedCountDefault)
    .examples(
      'strongroom instance list',
      'strongroom instance list --org acme --json',
      'strongroom instance list --status failed --since 2026-11-25T00:00:00Z',
    )
    .runs(async (run, { org: organization, status, name, since, limit }: ListOptions) => {
      const query = { organization, status, name, since: since === undefined ? undefined : iso(since), limit }
      const request = { path: '/instances', query, response: AdminInstanceList }
      const shown = await orCustomer(run, 'strongroom ls', () => run.show(request, listText))
      if (shown.more) await run.hint(`only the newest ${limit} are shown; see --limit, --status, --name, --since`)
    })

  onOne(instance, 'show', 'show one instance')
    .examples('strongroom instance show k3v9x2ab', 'strongroom instance show acme/k3v9x2ab')
    .runs(async (run, ref: string) => {
      const request = { path: '/instance', query: { ref }, response: AdminInstance }
      const found = await orCustomer(run, 'strongroom ls', () => run.show(request, instanceText))
      if (found.status === 'failed') {
        await run.hint(`see also: strongroom instance logs ${ref}; strongroom instance console ${ref}`)
      }
    })

  onOne(
    instance,
    'delete',
    'delete an instance and its data permanently; its record is kept for instances.retention_days',
  )
    .examples('strongroom instance delete acme/k3v9x2ab')
    .runs(async (run, ref: string) => {
      const request = { method: 'DELETE', path: '/instance', query: { ref }, response: AdminInstance } as const
      await orCustomer(run, 'strongroom rm NAME', () => run.show(request, instanceText))
    })

  onOne(instance, 'console', 'print the serial console; control characters are shown as text on a terminal')
    .option('--follow', 'keep printing as it grows, until interrupted')
    .option(
      '--tail <bytes>',
      'start this many bytes before the end',
      countOption(0, consoleTailBytesMax),
      tailBytesDefault,
    )
    .examples('strongroom instance console k3v9x2ab --tail 4096 --follow')
    .runs(async (run, ref: string, options: { follow?: boolean; tail: number }) => {
      const { tail, follow = false } = options
      const asked = { path: '/instance/console', query: { ref, tail, follow } }
      await printStream(run, asked, { name: 'console', isEndless: follow })
    })

  onOne(instance, 'logs', 'print the events of an instance and its VM, oldest first')
    .examples('strongroom instance logs k3v9x2ab', 'strongroom instance logs k3v9x2ab --json')
    .runs(async (run, ref: string) => {
      await run.show({ path: '/instance/events', query: { ref }, response: AdminEventList }, eventsText)
    })

  addEgress(instance)
}

/** A machine without a state directory has no appliance: its user is a customer, whose command is another one. */
async function orCustomer<T>({ stateDir }: Run, command: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Fault) || error.code !== 'admin.unreachable' || existsSync(stateDir)) throw error
    throw new AdvisedFault(error.code, 'this command is for the operator, on the host of the appliance', {
      remedy: `for the instances of your API key: \`${command}\` (\`strongroom help instances\`)`,
      cause: error,
    })
  }
}

type ListOptions = { org?: string; status?: string; name?: string; since?: number; limit: number }

type RaiseOptions = { to?: number; by?: number; reason?: string }

function addEgress(instance: Command): void {
  const egress = instance
    .command('egress')
    .description('the egress limit of an instance: raise')
    .examples('strongroom instance egress raise acme/k3v9x2ab --to 20GiB')
  onOne(
    egress,
    'raise',
    'raise the egress limit of a running instance, which lifts its block; limits are never lowered',
  )
    .option(
      '--to <bytes>',
      'the new limit, like 20GiB; repeating the command has no effect',
      bytesOption(egressLimitBytesMax),
    )
    .option('--by <bytes>', 'increase of the limit, like 5GiB', bytesOption(egressLimitBytesMax))
    .option('--reason <text>', 'why, for the journal')
    .examples(
      'strongroom instance egress raise acme/k3v9x2ab --to 20GiB --reason "ticket 4711"',
      'strongroom instance egress raise acme/k3v9x2ab --by 5GiB',
    )
    .runs(async (run, ref: string, { to, by, reason }: RaiseOptions) => {
      if ((to === undefined) === (by === undefined)) {
        throw new InputFault('one of --to and --by is needed, and not both', {
          param: 'to',
          remedy: 'say the new limit with --to, or how much more with --by',
        })
      }
      const body: AdminEgressRaise = {
        to_bytes: to ?? null,
        by_bytes: by ?? null,
        reason: reason ?? null,
        operator: operatorName(run.io.env),
      }
      await run.show(
        { method: 'POST', path: '/instance/egress-limit', query: { ref }, body, response: AdminInstance },
        instanceText,
      )
    })
}

/** Returns the user that called sudo, otherwise the user that is logged in. */
function operatorName(env: Run['io']['env']): string {
  const name = env.SUDO_USER || env.LOGNAME || env.USER || 'root'
  return name.slice(0, 64)
}

function onOne(parent: Command, name: string, description: string): Command {
  return parent
    .command(name)
    .description(description)
    .argument('<instance>', 'id, name, or organization/name where several instances have that name')
}

function listText({ instances }: AdminInstanceList, paint: Paint): string {
  const rows = instances.map(row => [
    row.organization,
    row.name,
    paint.word(row.status),
    dash(row.vm?.address ?? row.vm?.address_v6),
    bytesText(row.egress_bytes),
    row.egress_limit_bytes === null ? '-' : bytesText(row.egress_limit_bytes),
    timeText(row.created_at),
    dash(row.failure_code),
  ])
  return table(paint, ['ORGANIZATION', 'NAME', 'STATUS', 'ADDRESS', 'EGRESS', 'LIMIT', 'CREATED', 'FAILURE'], rows)
}

function instanceText(row: AdminInstance, paint: Paint): string {
  const since = row.egress_block_applied_at
  const limit = row.egress_limit_bytes === null ? '' : ` of ${row.egress_limit_bytes}`
  const blocked =
    since === null ? '' : `, blocked since ${since}; ${row.rescue_bytes ?? 0} bytes more as answers to SSH`
  return fields(paint, [
    ['id', row.id],
    ['organization', row.organization],
    ['name', row.name],
    ['hostname', row.hostname],
    ['status', paint.word(row.status)],
    ['failure', row.failure_code === null ? '-' : `${row.failure_code}: ${dash(row.failure_message)}`],
    ['VM', row.vm === null ? '-' : `${row.vm.id} ${row.vm.state}`],
    ['address', dash([row.vm?.address, row.vm?.address_v6].filter(text => text != null).join(' '))],
    ['agent', row.agent],
    ['model', `${row.inference_model} (${row.inference_mode})`],
    ['public key', oneLine(row.public_key.trim())],
    ['egress', `${row.egress_bytes} bytes${limit}${blocked}`],
    ['created', row.created_at],
    ['ready', dash(row.ready_at)],
    ['attested', row.attested_at === null ? 'no' : `at ${row.attested_at}`],
    ['terminated', row.terminated_at === null ? '-' : `${row.terminated_at} (${dash(row.terminated_reason)})`],
  ])
}

/** QEMU's own lines stand below their event. */
function eventsText({ events }: Static<typeof AdminEventList>, paint: Paint): string {
  const rows = events.map(({ at, kind, detail }) => [at, kind, wordsOf(detail) === null ? detailText(detail) : ''])
  const [head = '', ...lines] = table(paint, ['TIME', 'EVENT', 'DETAIL'], rows).trimEnd().split('\n')
  const withWords = lines.flatMap((line, index) => {
    const words = wordsOf(events[index]?.detail ?? {})
    return words === null ? [line] : [line, ...words.split('\n').map(text => `  ${harmless(text)}`)]
  })
  return [head, ...withWords].map(line => `${line}\n`).join('')
}

function wordsOf({ qemu }: AdminEvent['detail']): string | null {
  return typeof qemu === 'string' ? qemu : null
}

function detailText(detail: AdminEvent['detail']): string {
  return Object.keys(detail).length === 0 ? '' : harmless(JSON.stringify(detail))
}
