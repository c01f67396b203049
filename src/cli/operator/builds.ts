// strongroom builds: attested builds of all organizations, as the operator sees them. Effects: requests to the daemon.

import type { Static } from '@sinclair/typebox'
import { AdminBuild, AdminBuildList, buildListMax } from '../../contract/admin/admin.ts'
import { countOption } from '../../terminal/options.ts'
import { bytesText, dash, fields, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import { type Command, path } from '../operator-run.ts'
import { printStream } from './print-stream.ts'

const listCountDefault = 50
const exampleId = '4f9d2c1e-6c1b-4f0e-9c39-0a9a5f6b7c8d'

export function addBuilds(program: Command): void {
  const builds = program
    .command('builds')
    .description('attested builds: list, show, logs, cancel')
    .examples('strongroom builds list', `strongroom builds show ${exampleId}`)

  builds
    .command('list')
    .description('list builds, newest first, including ended ones while their records are kept')
    .option('--org <slug>', 'only those of this organization')
    .option('--limit <n>', 'at most this many', countOption(1, buildListMax), listCountDefault)
    .examples('strongroom builds list', 'strongroom builds list --org acme --limit 1000 --json')
    .runs(async (run, options: { org?: string; limit: number }) => {
      const query = { organization: options.org, limit: options.limit }
      const found = await run.show({ path: '/builds', query, response: AdminBuildList }, listText)
      if (found.builds.length === options.limit && options.limit < buildListMax) {
        await run.hint(`there may be more: --limit ${Math.min(options.limit * 10, buildListMax)}`)
      }
    })

  onOne(builds, 'show', 'show one build')
    .examples(`strongroom builds show ${exampleId}`)
    .runs(async (run, id: string) => {
      await run.show({ path: path`/builds/${id}`, response: AdminBuild }, buildText)
    })

  onOne(builds, 'logs', 'print the events of a build; control characters are shown as text on a terminal')
    .option('--follow', 'keep printing until the build ends')
    .examples(`strongroom builds logs ${exampleId}`, `strongroom builds logs ${exampleId} --follow`)
    .runs(async (run, id: string, { follow = false }: { follow?: boolean }) => {
      await printStream(run, { path: path`/builds/${id}/log`, query: { follow } }, { name: 'log', isEndless: follow })
    })

  onOne(builds, 'cancel', 'cancel a build and end its VM; no effect if it has ended')
    .examples(`strongroom builds cancel ${exampleId}`)
    .runs(async (run, id: string) => {
      await run.show({ method: 'POST', path: path`/builds/${id}/cancel`, response: AdminBuild }, buildText)
    })
}

function onOne(parent: Command, name: string, description: string): Command {
  return parent.command(name).description(description).argument('<id>', 'id of the build, its job_id')
}

function listText({ builds }: Static<typeof AdminBuildList>, paint: Paint): string {
  const rows = builds.map(build => [
    build.id,
    dash(build.organization),
    paint.word(build.state),
    sourceText(build.source),
    timeText(build.created_at),
    timeText(build.finished_at),
    dash(build.error_type),
  ])
  return table(paint, ['ID', 'ORGANIZATION', 'STATE', 'SOURCE', 'CREATED', 'FINISHED', 'ERROR'], rows)
}

function sourceText({ kind, name, ref, size_bytes: sizeBytes }: AdminBuild['source']): string {
  if (kind === 'git') return oneLine(ref === null ? dash(name) : `${dash(name)} ${ref}`)
  return oneLine(`${name ?? 'archive'}, ${bytesText(sizeBytes ?? 0)}`)
}

function buildText(build: AdminBuild, paint: Paint): string {
  const { result, error, error_type: errorType, vm, source } = build
  const kept = result?.removed_at == null ? '' : `, removed at ${result.removed_at}`
  return fields(paint, [
    ['id', build.id],
    ['organization', dash(build.organization)],
    ['state', paint.word(build.state)],
    ['error', errorType === null ? '-' : `${errorType}: ${oneLine(dash(error))}`],
    ['source', sourceText(source)],
    ['source SHA-256', dash(source.sha256)],
    ['directory', oneLine(dash(build.project_dir))],
    ['toolchain', build.toolchain ?? 'detected'],
    ['reproduce', build.reproduce ? 'yes' : 'no'],
    ['nonce', build.nonce],
    ...(build.host === null ? [] : [['host', build.host] as const]),
    ['VM', vm === null ? (build.vm_id === null ? '-' : `${build.vm_id} gone`) : `${vm.id} ${vm.state}`],
    ['address', dash(vm?.address)],
    ['network', build.network],
    ['measurement', build.measurement === null ? '-' : `${build.measurement}${build.simulated ? ' SIMULATED' : ''}`],
    ['result', result === null ? '-' : `${result.size_bytes} bytes, SHA-256 ${result.sha256}${kept}`],
    ['disk', bytesText(build.disk_bytes)],
    ['created', build.created_at],
    ['started', dash(build.started_at)],
    ['finished', dash(build.finished_at)],
    ['closed', dash(build.closed_at)],
  ])
}
