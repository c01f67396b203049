// strongroom ls: the instances of the key's organization, with the names of this machine. Effects: the network, files.

import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { dash, table, timeText } from '../../terminal/render.ts'
import { clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { knownHostFinder } from '../known-hosts.ts'
import { addServiceOptions, readService, type ServiceOptions } from '../verify/service-options.ts'
import { type LocalNames, localNames } from './names.ts'
import type { SeenInstance } from './records.ts'
import { createService } from './service.ts'

type LsOptions = ServiceOptions & { all?: boolean }

export function addLs(program: Command): void {
  const command = program
    .command('ls')
    .description('list your instances, with your names for them')
    .option('--all', 'also those that have ended, while their records are kept')
  addServiceOptions(command)
    .addHelpText(
      'after',
      `${clientConfigHelp}
NAME is yours, on this machine alone; INSTANCE is that of the service. \`verified\` has a host key that \`strongroom up\`
verified here. The rest is what the service reports, and proves nothing.
${helpText('strongroom ls', 'strongroom ls --all --json')}`,
    )
    .runs(list)
}

type Row = { readonly localName: string | null; readonly isVerified: boolean; readonly record: SeenInstance }

async function list(run: Run, { all = false, ...options }: LsOptions): Promise<void> {
  const { env } = run.io
  const source = readService(env, options, await loadClientDefaults(env))
  const names = localNames(env)
  const records = await createService(source).list()
  const shownRecords = all ? records : records.filter(({ status }) => status !== 'terminated')
  const rows = rowsOf(shownRecords, names)
  const unfinished = names.list().flatMap(([name, { api, hostname }]) => {
    return hostname === null && api === source.api.origin ? [name] : []
  })
  const document = {
    instances: rows.map(({ localName, isVerified, record }) => ({
      local_name: localName,
      verified: isVerified,
      ...shown(record),
    })),
    unfinished,
  }
  await run.result(document, () => textOf(run, rows))
  for (const { message, remedy } of names.damaged()) await run.hint(`${message}; ${remedy}`)
  for (const name of unfinished)
    await run.hint(`${name}: its creation did not finish; \`strongroom up ${name}\` goes on`)
}

/** Sorts instances with a name of this machine to the front. Keeps the service's order, the oldest first, otherwise. */
function rowsOf(records: readonly SeenInstance[], names: LocalNames): Row[] {
  const local = new Map(names.list().map(([name, { hostname }]) => [hostname, name]))
  const knownHost = knownHostFinder(names.knownHosts)
  const rows = records.map(record => ({
    localName: local.get(record.hostname) ?? null,
    isVerified: knownHost(record.hostname) !== null,
    record,
  }))
  return rows.toSorted((a, b) => Number(a.localName === null) - Number(b.localName === null))
}

/** Returns the known fields. Leaves out those of later versions, whose form is unknown. */
function shown({
  name,
  status,
  hostname,
  inference_model,
  created_at,
  ready_at,
  terminated_at,
  ...rest
}: SeenInstance) {
  return {
    name,
    status,
    hostname,
    model: inference_model,
    created_at,
    ready_at: ready_at ?? null,
    terminated_at: terminated_at ?? null,
    terminated_reason: rest.terminated_reason ?? null,
    failure_code: rest.failure_code ?? null,
  }
}

function textOf({ paint }: Run, rows: readonly Row[]): string {
  if (rows.length === 0) return 'no instances; `strongroom up` creates one\n'
  const cells = rows.map(({ localName, isVerified, record }) => [
    dash(localName),
    record.name,
    paint.word(record.status),
    isVerified ? 'verified' : '-',
    timeText(record.created_at),
    record.hostname,
    dash(record.failure_code),
  ])
  return table(paint, ['NAME', 'INSTANCE', 'STATUS', 'HOST KEY', 'CREATED', 'HOST', 'FAILURE'], cells)
}
