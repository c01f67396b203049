// strongroom instance: the instances of all organizations, as the operator sees them. Effects: requests to the daemon.

import type { Command } from 'commander'
import { harmless } from '../../base/harmless.ts'
import {
  type AdminEvent,
  AdminEventList,
  AdminInstance,
  AdminInstanceList,
  consoleTailBytesMax,
} from '../../contract/admin.ts'
import { type Cli, helpText, type Run, runOf } from '../cli.ts'
import { InputFault } from '../exit.ts'
import { countOption } from '../options.ts'
import { bytesText, dash, fields, type Paint, table, timeText } from '../render.ts'

const tailBytesDefault = 65_536

export function addInstance(program: Command, cli: Cli): void {
  const instance = program
    .command('instance')
    .description('instances: list, show, delete, console, logs')
    .addHelpText('after', helpText('strongroom instance list', 'strongroom instance show acme/k3v9x2ab'))

  instance
    .command('list')
    .description('list instances, including terminated ones that are still on record')
    .option('--org <slug>', 'only those of this organization')
    .addHelpText('after', helpText('strongroom instance list', 'strongroom instance list --org acme --json'))
    .action(async (options: { org?: string }, command: Command) => {
      const run = runOf(cli, command)
      const query = { organization: options.org }
      const found = await run.client().request({ path: '/instances', query, response: AdminInstanceList })
      await run.result(found, listText(found.instances, run.paint))
    })

  onOne(instance, 'show', 'show one instance')
    .addHelpText('after', helpText('strongroom instance show k3v9x2ab', 'strongroom instance show acme/k3v9x2ab'))
    .action(async (ref: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const found = await run.client().request({ path: '/instance', query: { ref }, response: AdminInstance })
      await run.result(found, instanceText(found, run.paint))
      if (found.status === 'failed') {
        await run.hint(`see also: strongroom instance logs ${ref}; strongroom instance console ${ref}`)
      }
    })

  onOne(instance, 'delete', 'delete an instance and its data for good; its record is kept for a while')
    .addHelpText('after', helpText('strongroom instance delete acme/k3v9x2ab'))
    .action(async (ref: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const found = await run
        .client()
        .request({ method: 'DELETE', path: '/instance', query: { ref }, response: AdminInstance })
      await run.result(found, instanceText(found, run.paint))
    })

  onOne(instance, 'console', 'print the serial console; control characters are shown as text on a terminal')
    .option('--follow', 'keep printing as it grows, until interrupted')
    .option(
      '--tail <bytes>',
      'start this many bytes before the end',
      countOption(0, consoleTailBytesMax),
      tailBytesDefault,
    )
    .addHelpText('after', helpText('strongroom instance console k3v9x2ab --tail 4096 --follow'))
    .action(async (ref: string, options: { follow?: boolean; tail: number }, command: Command) => {
      await printConsole(runOf(cli, command), { ref, tail: options.tail, follow: options.follow === true })
    })

  onOne(instance, 'logs', 'print the events of an instance and its VM, oldest first')
    .addHelpText('after', helpText('strongroom instance logs k3v9x2ab', 'strongroom instance logs k3v9x2ab --json'))
    .action(async (ref: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const found = await run.client().request({ path: '/instance/events', query: { ref }, response: AdminEventList })
      await run.result(found, eventsText(found.events, run.paint))
    })
}

function onOne(parent: Command, name: string, description: string): Command {
  return parent
    .command(name)
    .description(description)
    .argument('<instance>', 'id, name, or organization/name where several instances have that name')
}

async function printConsole(run: Run, { ref, tail, follow }: { ref: string; tail: number; follow: boolean }) {
  if (follow && run.json) {
    throw new InputFault('--follow has no end, so --json cannot print it as one document', {
      param: 'follow',
      remedy: 'leave out --follow or --json',
    })
  }
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of run.client().stream({ path: '/instance/console', query: { ref, tail, follow } })) {
    if (run.json) text += decoder.decode(chunk, { stream: true })
    else if (run.io.stdoutIsTerminal) await run.io.stdout(harmless(decoder.decode(chunk, { stream: true })))
    else await run.io.stdout(chunk)
  }
  if (run.json) await run.result({ console: text + decoder.decode() }, '')
}

function listText(instances: readonly AdminInstance[], paint: Paint): string {
  const rows = instances.map(row => [
    row.organization,
    row.name,
    paint.word(row.status),
    dash(row.vm?.address),
    bytesText(row.egress_bytes),
    timeText(row.created_at),
    dash(row.failure_code),
  ])
  return table(['ORGANIZATION', 'NAME', 'STATUS', 'ADDRESS', 'EGRESS', 'CREATED', 'FAILURE'], rows, paint)
}

function instanceText(row: AdminInstance, paint: Paint): string {
  const since = row.egress_block_applied_at
  const blocked =
    since === null ? '' : `, blocked since ${since}; ${row.rescue_bytes ?? 0} bytes more as answers to SSH`
  return fields(
    [
      ['id', row.id],
      ['organization', row.organization],
      ['name', row.name],
      ['hostname', row.hostname],
      ['status', paint.word(row.status)],
      ['failure', row.failure_code === null ? '-' : `${row.failure_code}: ${dash(row.failure_message)}`],
      ['VM', row.vm === null ? '-' : `${row.vm.id} ${row.vm.state}`],
      ['address', dash(row.vm?.address)],
      ['agent', row.agent],
      ['model', `${row.inference_model} (${row.inference_mode})`],
      ['public key', row.public_key],
      ['egress', `${row.egress_bytes} bytes${blocked}`],
      ['created', row.created_at],
      ['ready', dash(row.ready_at)],
      ['attested', row.attested_at === null ? 'no' : `at ${row.attested_at}`],
      ['terminated', row.terminated_at === null ? '-' : `${row.terminated_at} (${dash(row.terminated_reason)})`],
    ],
    paint,
  )
}

/** What QEMU said is printed under its event, line by line. */
function eventsText(events: readonly AdminEvent[], paint: Paint): string {
  const rows = events.map(({ at, kind, detail }) => [at, kind, wordsOf(detail) === null ? detailText(detail) : ''])
  const [head = '', ...lines] = table(['TIME', 'EVENT', 'DETAIL'], rows, paint).trimEnd().split('\n')
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
