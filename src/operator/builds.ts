// Attested builds of all organizations in the admin interface. Effects: the store; service C cancels builds, through a
// function.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { present } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminBuild, AdminBuildList, buildListMax, Slug } from '../contract/admin/admin.ts'
import { optionText } from '../contract/http/option-words.ts'
import { buildById, LIVING_STATES, listBuilds } from '../store/directory/build.query.ts'
import type { Build } from '../store/directory/build.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { AdminDeps, BuildLogOptions } from './deps.ts'
import { vmView } from './instances.ts'
import { organizationBySlug } from './organizations.ts'

type BuildsDeps = Pick<AdminDeps, 'store' | 'clock' | 'log' | 'cancelBuild' | 'buildLog' | 'vm' | 'hostName'>

export function buildRoutes(deps: BuildsDeps) {
  const params = Type.Object({ id: Type.String({ minLength: 1, maxLength: 64 }) })
  return new Elysia({ normalize: false })
    .get('/builds', ({ query }) => ({ builds: list(deps, query.organization ?? null, query.limit) }), {
      query: Type.Object({
        organization: Type.Optional(Slug),
        limit: t.Integer({ default: buildListMax, minimum: 1, maximum: buildListMax }),
      }),
      response: AdminBuildList,
    })
    .get('/builds/:id', ({ params: { id } }) => buildView(deps, find(deps, id)), { params, response: AdminBuild })
    .get(
      '/builds/:id/log',
      ({ params: { id }, query, request }) => logOf(deps, id, { ...query, signal: request.signal }),
      {
        params,
        query: Type.Object({ follow: t.Boolean({ default: false }) }),
      },
    )
    .post('/builds/:id/cancel', async ({ params: { id } }) => buildView(deps, await cancel(deps, id)), {
      params,
      response: AdminBuild,
    })
}

/** Returns builds of one organization, or of all if `slug` is null, the newest first. Throws Fault not_found. */
function list(deps: BuildsDeps, slug: string | null, limit: number): AdminBuild[] {
  const { db } = deps.store.directory
  const of = slug === null ? {} : { organizationId: organizationBySlug(db, slug).id }
  return listBuilds(db, { ...of, limit }).map(build => buildView(deps, build))
}

/** Returns the build. Throws Fault not_found. */
function find({ store }: BuildsDeps, id: string): Build {
  const build = buildById(store.directory.db, id)
  if (build === null) throw new Fault('not_found', `there is no build ${id}`, { param: 'build' })
  return build
}

/** Streams a build's log. Faults: not_found (also if its log was removed), conflict (service C is off). */
async function logOf(deps: BuildsDeps, id: string, options: BuildLogOptions): Promise<Response> {
  const build = find(deps, id)
  if (deps.buildLog === null)
    throw new Fault('conflict', 'service C is off in this daemon; set listen.builds and start it again')
  const lines = deps.buildLog(build, options)[Symbol.asyncIterator]()
  // Reads the first line now, so that a missing log is a refusal instead of a broken stream.
  const first = await lines.next()
  const body = new ReadableStream<Uint8Array>(
    {
      start: controller => {
        if (first.done !== true) controller.enqueue(first.value)
      },
      pull: async controller => {
        const next = await lines.next()
        if (next.done === true) controller.close()
        else controller.enqueue(next.value)
      },
      cancel: async () => {
        await lines.return?.()
      },
    },
    { highWaterMark: 0 },
  )
  return new Response(body, { headers: { 'content-type': 'text/plain; charset=utf-8' } })
}

/**
 * Cancels a build. No effect on an ended build; only a change causes an event. Faults: not_found, conflict (service C
 * is off), fleet.unavailable.
 */
async function cancel(deps: BuildsDeps, id: string): Promise<Build> {
  const { store, clock, log, cancelBuild } = deps
  const before = find(deps, id)
  if (!isLiving(before)) return before
  if (cancelBuild === null) {
    const message =
      'service C is off in this daemon, so nothing runs or ends its builds; set listen.builds and start it again'
    throw new Fault('conflict', message)
  }
  const after = present(await cancelBuild(id), 'nothing removes a living build')
  if (after.state === 'cancelled') {
    const detail = { state: before.state, organization: slugOf(deps, before) }
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind: 'build.operator_cancel', subject: id, detail })
  }
  return after
}

function isLiving({ state }: Build): boolean {
  return LIVING_STATES.some(living => living === state)
}

function slugOf({ store }: Pick<BuildsDeps, 'store'>, { organizationId }: Build): string | null {
  if (organizationId === null) return null
  return present(organizationById(store.directory.db, organizationId), 'a build has its organization').slug
}

function buildView(deps: BuildsDeps, build: Build): AdminBuild {
  const isGit = build.sourceKind === 'git'
  return {
    id: build.id,
    organization: slugOf(deps, build),
    state: build.state,
    nonce: build.nonce,
    source: {
      kind: build.sourceKind,
      name: isGit ? build.repoUrl : build.sourceName,
      ref: build.repoRef,
      size_bytes: build.sourceBytes,
      sha256: build.sourceSha256,
    },
    project_dir: build.projectDir,
    toolchain: build.toolchain,
    options: optionText(build.options),
    reproduce: build.reproduce,
    network: build.network,
    measurement: build.measurement,
    simulated: build.simulated,
    result: resultOf(build),
    error_type: build.errorType,
    error: build.error,
    disk_bytes: build.diskBytes,
    created_at: iso(build.createdAtMs),
    started_at: isoOrNull(build.startedAtMs),
    finished_at: isoOrNull(build.finishedAtMs),
    closed_at: isoOrNull(build.closedAtMs),
    host: deps.hostName(build.hostId),
    vm_id: build.vmId,
    vm: vmView(deps.vm, build.vmId),
  }
}

function resultOf({ resultBytes, resultSha256, removedAtMs }: Build): AdminBuild['result'] {
  if (resultBytes === null || resultSha256 === null) return null
  return { size_bytes: resultBytes, sha256: resultSha256, removed_at: isoOrNull(removedAtMs) }
}
