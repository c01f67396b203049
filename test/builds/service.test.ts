// Goal: each limit of service C refuses exactly from its number on, and what was refused left nothing behind.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildsSettings } from '../../scripts/rigs/build/builds-service.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { EventLogs } from '../../src/builds/events/events.ts'
import { BuildFiles } from '../../src/builds/files.ts'
import { HostClosedFault, HostFullFault } from '../../src/builds/fleet.ts'
import type { BuildWanted } from '../../src/builds/request.codec.ts'
import { BuildsService, type BuildsServiceDeps } from '../../src/builds/service.ts'
import type { BuildsSettings, Caller } from '../../src/builds/types.ts'
import { retryAfterOf, UnavailableFault } from '../../src/http/limited.ts'
import type { DirectoryHost, DirectoryTx } from '../../src/store/db.ts'
import {
  insertReservation,
  LIVING_STATES,
  listBuilds,
  listBuildVms,
  moveBuild,
  VM_STATES,
} from '../../src/store/directory/build.query.ts'
import type { Build } from '../../src/store/directory/build.table.ts'
import { setOrganizationQuotas, setOrganizationStatus } from '../../src/store/directory/organization.query.ts'
import { directBuilds } from '../rigs/build/direct-builds.ts'
import { withHosts } from '../rigs/fleet/with-hosts.ts'

const acme: Caller = { organizationId: 'acme', slug: 'acme', keyPrefix: 'k' }
const globex: Caller = { organizationId: 'globex', slug: 'globex', keyPrefix: 'g' }
const stranger: Caller = { organizationId: null, slug: null, keyPrefix: null }
const address = () => '203.0.113.9'
const any = { vmId: null }
const dayMs = 24 * 60 * 60 * 1000

type Changes = Partial<BuildsServiceDeps> & { readonly hosts?: Pick<DirectoryTx['hosts'], 'find'> }

function open(settings: Partial<BuildsSettings> = {}, { hosts, ...changes }: Changes = {}) {
  const undo = new DisposableStack()
  const builds = undo.use(directBuilds())
  const directory = mkdtempSync(join(tmpdir(), 'srt-service-'))
  undo.defer(() => rmSync(directory, { recursive: true }))
  const files = new BuildFiles(directory)
  const events = new EventLogs(id => files.path(id, 'events'), { settings: buildsSettings, nowMs: builds.clock.nowMs })
  const accepted: string[] = []
  const cancelled: string[] = []
  const held: string[] = []
  const { store, clock } = builds
  const service = new BuildsService({
    directory: withHosts(store.directory, clock, hosts),
    hostId: store.hostId,
    clock,
    random: systemRandom,
    log: silentLogger,
    settings: { ...buildsSettings, ...settings },
    files,
    events,
    makeRoom: () => true,
    admitNew: () => {},
    reserveVm: (_, { organizationId }) => ({ vmId: builds.reserve(organizationId), start: () => {} }),
    holdVm: vmId => {
      held.push(`hold ${vmId}`)
      return () => void held.push(`release ${vmId}`)
    },
    onAccepted: ({ id }) => void accepted.push(id),
    onCancelled: ({ id }) => void cancelled.push(id),
    ...changes,
  })
  let count = 0
  const next = () => {
    count += 1
    return count.toString(16).padStart(8, '0')
  }
  const wanted = (nonce = next()): BuildWanted => ({
    nonce,
    source: { kind: 'git', url: 'https://git.example/a', ref: null },
    projectDir: null,
    toolchain: null,
    reproduce: false,
    options: null,
    waivers: [],
    fetchCaSha256: null,
    cratesMirror: null,
  })
  const upload = (bytes = 3) => {
    const path = files.incomingPath(next())
    writeFileSync(path, Buffer.alloc(bytes))
    return { kind: 'archive', name: 'a.tar', upload: { path, sizeBytes: bytes, sha256: 'ab'.repeat(32) } } as const
  }
  const submit = (caller: Caller = acme, of: BuildWanted = wanted(), vmId: string | null = null) =>
    service.submit(caller, of, { vmId }, address)
  const rows = () => listBuilds(store.directory.db, { limit: 1_000 }).length
  return { ...builds, service, files, events, accepted, cancelled, held, wanted, upload, submit, rows, ...undoOf(undo) }
}

function undoOf(undo: DisposableStack) {
  return { [Symbol.dispose]: () => undo.dispose() }
}

/** Kind, code and the seconds to wait of the refusal. */
async function refusal(work: () => unknown): Promise<string> {
  try {
    await work()
    return 'accepted'
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    const kind = error instanceof HostFullFault ? 'full ' : error instanceof HostClosedFault ? 'closed ' : ''
    return `${kind}${error.code} ${retryAfterOf(error) ?? ''}`.trim()
  }
}

test('goal: a build is on record as it was asked for, with its source, its place and one call back', async () => {
  using rig = open()
  const source = rig.upload()
  const build = await rig.submit(acme, { ...rig.wanted('00aa'), source, toolchain: 'nix', reproduce: true })
  expect(rig.get(build.id)).toEqual(build)
  expect(build).toMatchObject({
    organizationId: 'acme',
    hostId: rig.store.hostId,
    state: 'queued',
    nonce: '00aa',
    sourceKind: 'archive',
    sourceName: 'a.tar',
    sourceBytes: 3,
    diskBytes: 3,
    repoUrl: null,
    toolchain: 'nix',
    reproduce: true,
    createdAtMs: rig.clock.nowMs(),
    startedAtMs: null,
  })
  expect([existsSync(rig.files.path(build.id, 'source')), existsSync(source.upload.path)]).toEqual([true, false])
  expect(rig.accepted).toEqual([build.id])
  const git = await rig.submit()
  expect(git).toMatchObject({ sourceKind: 'git', repoUrl: 'https://git.example/a', sourceBytes: null, diskBytes: 0 })
})

test('goal: a nonce is used once by an organization, and another one may use it, too', async () => {
  using rig = open()
  await rig.submit(acme, rig.wanted('00'))
  expect(await refusal(() => rig.submit(acme, rig.wanted('00')))).toBe('conflict')
  expect(await refusal(() => rig.submit(globex, rig.wanted('00')))).toBe('accepted')
})

test('goal: the queue holds its number besides the VMs that are free, and half of it for one organization', async () => {
  using rig = open({ concurrentMax: 2, queueMax: 4 })
  for (let n = 0; n < 4; n += 1) await rig.submit()
  expect(await refusal(() => rig.submit())).toBe('full rate_limited 15')
  for (let n = 0; n < 2; n += 1) await rig.submit(globex)
  expect(await refusal(() => rig.submit(globex))).toBe('full rate_limited 15')
  expect([rig.rows(), rig.service.hasRoom(globex, address)]).toEqual([6, false])
})

test('goal: an organization has as many builds and reservations as it may, until one ends', async () => {
  using rig = open({ perOrganizationMax: 2 })
  const { id } = await rig.submit()
  const reserved = { vmId: rig.reserve('acme'), hostId: rig.store.hostId, organizationId: 'acme', expiresAtMs: 1 }
  insertReservation(rig.db, reserved)
  expect(await refusal(() => rig.submit())).toBe('rate_limited 15')
  expect(await refusal(() => rig.submit(globex))).toBe('accepted')
  await rig.service.cancel(acme, id, any)
  expect(await refusal(() => rig.submit())).toBe('accepted')
})

test('goal: a build counts as one that its organization has while it waits, starts and runs, and in no other state', async () => {
  expect([...LIVING_STATES]).toEqual(['queued', 'starting', 'running'])
  expect([...VM_STATES]).toEqual(['starting', 'running'])
  const STEPS: Readonly<Record<string, readonly Build['state'][]>> = {
    queued: [],
    starting: ['starting'],
    running: ['starting', 'running'],
    cancelled: ['starting', 'running', 'cancelled'],
  }
  for (const [state, steps] of Object.entries(STEPS)) {
    using rig = open({ perOrganizationMax: 1 })
    const { id } = await rig.submit()
    let from: Build['state'] = 'queued'
    for (const to of steps) {
      moveBuild(rig.db, { id, from, to, finishedAtMs: to === 'cancelled' ? 1 : null })
      from = to
    }
    expect<string>(rig.get(id).state).toBe(state)
    const next = await refusal(() => rig.submit())
    expect([state, next]).toEqual([state, state === 'cancelled' ? 'accepted' : 'rate_limited 15'])
  }
})

test('goal: as many builds a day as may be, counted from the first of them', async () => {
  using rig = open({ perDayMax: 2 })
  const first = await rig.submit()
  rig.clock.advance(60_000)
  await rig.submit()
  expect(await refusal(() => rig.submit())).toBe(`rate_limited ${(dayMs - 60_000) / 1000}`)
  rig.clock.advance(dayMs - 60_000)
  expect(await refusal(() => rig.submit())).toBe('rate_limited 1')
  rig.clock.advance(1)
  expect([first.nonce, await refusal(() => rig.submit())]).toEqual(['00000001', 'accepted'])
})

test('goal: uploads are bounded, per organization and in all, and a place is given back once', async () => {
  using rig = open({ uploadsMax: 8 })
  const begin = (caller: Caller) => rig.service.beginUpload(caller, address)
  const leave = begin(acme)
  begin(acme)
  expect(await refusal(() => begin(acme))).toBe('full rate_limited 15')
  leave()
  leave()
  begin(acme)
  expect(await refusal(() => begin(acme))).toBe('full rate_limited 15')
  expect(rig.service.hasRoom(globex, address)).toBe(true)
})

test('goal: without room on the disk, and of a suspended organization, nothing is accepted or kept', async () => {
  using full = open({}, { makeRoom: () => false })
  expect(await refusal(() => full.submit())).toBe('rate_limited 15')
  using rig = open()
  setOrganizationStatus(rig.db, { slug: 'acme', status: 'suspended' })
  const source = rig.upload()
  expect(await refusal(() => rig.submit(acme, { ...rig.wanted(), source }))).toBe('forbidden')
  expect([full.rows(), rig.rows(), rig.accepted]).toEqual([0, 0, []])
})

test('goal: a stranger has half of what a network may begin', async () => {
  using rig = open({ perDayMax: 4, perOrganizationMax: 100 })
  await rig.submit(stranger)
  expect(await refusal(() => rig.submit(stranger))).toMatch(/^rate_limited \d+$/)
})

test('goal: a build is found by its owner alone, by its whole id, and at its VM', async () => {
  using rig = open()
  const { id } = await rig.submit()
  expect((await rig.service.find(acme, id, any)).id).toBe(id)
  for (const work of [
    () => rig.service.find(globex, id, any),
    () => rig.service.find(stranger, id, any),
    () => rig.service.find(acme, id.toUpperCase(), any),
    () => rig.service.find(acme, id, { vmId: id }),
  ]) {
    expect(await refusal(work)).toBe('not_found')
  }
  expect([(await rig.service.look(id))?.id, await rig.service.look('x')]).toEqual([id, null])
})

test('goal: a cancel ends a build once, whoever asks, and only its owner and the operator may', async () => {
  using rig = open()
  const { id } = await rig.submit()
  expect(await refusal(() => rig.service.cancel(globex, id, any))).toBe('not_found')
  const ended = await rig.service.cancel(acme, id, any)
  expect(ended).toMatchObject({ state: 'cancelled', errorType: 'cancelled', finishedAtMs: rig.clock.nowMs() })
  expect(await rig.service.cancel(acme, id, any)).toEqual(ended)
  expect([await rig.service.cancelById(id), await rig.service.cancelById('x')]).toEqual([ended, null])
  expect(rig.cancelled).toEqual([id])
  const theirs = rig.add({ hostId: 'other' })
  await rig.service.cancel(acme, theirs, any)
  expect([rig.get(theirs).state, rig.cancelled]).toEqual(['cancelled', [id]])
})

test('goal: a reserved VM takes one build of its owner, and is kept while that is on its way', async () => {
  using rig = open()
  const vmId = rig.reserve('acme')
  expect(await refusal(() => rig.submit(globex, rig.wanted(), vmId))).toBe('not_found')
  expect(await refusal(() => rig.service.admit(globex, { vmId }, address))).toBe('not_found')
  const build = await rig.submit(acme, rig.wanted(), vmId)
  expect(build).toMatchObject({ state: 'starting', vmId, startedAtMs: rig.clock.nowMs() })
  expect(rig.held).toEqual([`hold ${vmId}`, `release ${vmId}`, `hold ${vmId}`, `release ${vmId}`])
  expect(await refusal(() => rig.submit(acme, rig.wanted(), vmId))).toBe('conflict')
  expect(await refusal(() => rig.submit(globex, rig.wanted(), vmId))).toBe('not_found')
  expect([await rig.service.hostOfVm(vmId), await rig.service.hostOfVm('x')]).toEqual([rig.store.hostId, null])
})

test('goal: half of the VMs are reserved for one organization, none while builds wait or all are in use', async () => {
  using rig = open({ concurrentMax: 3 })
  const first = await rig.service.reserve(acme)
  expect(first.expiresAtMs).toBe(rig.clock.nowMs() + 60_000)
  expect(await refusal(() => rig.service.reserve(acme))).toBe('full rate_limited 15')
  const waiting = rig.add({ organizationId: 'globex' })
  expect(await refusal(() => rig.service.reserve(globex))).toBe('rate_limited 15')
  moveBuild(rig.db, { id: waiting, from: 'queued', to: 'starting' })
  rig.reserve(null)
  expect(await refusal(() => rig.service.reserve(globex))).toBe('full rate_limited 15')
  using without = open({}, { reserveVm: () => null })
  expect(await refusal(() => without.service.reserve(acme))).toBe('full rate_limited 15')
})

test('goal: a host that is drained reserves nothing, and keeps no row of it', async () => {
  const drained: DirectoryHost = { hasLease: true, isDraining: true, answersHosts: true, isLost: false }
  using rig = open({}, { hosts: { find: () => drained } })
  expect(await refusal(() => rig.service.reserve(acme))).toBe('closed fleet.unavailable 15')
  expect(listBuildVms(rig.db, rig.store.hostId)).toEqual([])
})

test('goal: quotas of an organization replace the configured limits of builds, and strangers have none', async () => {
  using rig = open({ perOrganizationMax: 2, perDayMax: 3 })
  const message = async (caller = acme) => {
    try {
      await rig.submit(caller)
      return 'accepted'
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      return `${error.code}: ${error.message}`
    }
  }
  setOrganizationQuotas(rig.db, 'acme', { builds: 1, builds_per_day: 2 })
  const { id } = await rig.submit()
  expect(await message()).toContain('rate_limited: You have reached the limit of 1 unfinished builds')
  expect([await message(globex), await message(globex)]).toEqual(['accepted', 'accepted'])
  expect(await message(globex)).toContain('limit of 2 unfinished builds')
  await rig.service.cancel(acme, id, any)
  const second = await rig.submit()
  await rig.service.cancel(acme, second.id, any)
  expect(await message()).toBe('rate_limited: You have reached the limit of 2 builds within 24 hours.')
  setOrganizationQuotas(rig.db, 'acme', { builds: 0 })
  expect(await message()).toBe('forbidden: The operator allows this organization no builds; ask the operator.')
  expect(await refusal(() => rig.service.reserve(acme))).toBe('forbidden')
  expect(await message(stranger)).toBe('accepted')
})

test('goal: a quota of memory refuses a build and a reservation that would exceed it, and says if none ever fits', async () => {
  using rig = open({ perOrganizationMax: 9, perDayMax: 9, buildMemoryMib: 4096 })
  setOrganizationQuotas(rig.db, 'acme', { memory_mib: 8191 })
  const { id } = await rig.submit()
  expect(await refusal(() => rig.submit())).toBe('rate_limited 15')
  expect(await refusal(() => rig.service.reserve(acme))).toBe('rate_limited 15')
  setOrganizationQuotas(rig.db, 'acme', { memory_mib: 8192 })
  expect(await refusal(() => rig.submit())).toBe('accepted')
  expect(await refusal(() => rig.submit())).toBe('rate_limited 15')
  await rig.service.cancel(acme, id, any)
  setOrganizationQuotas(rig.db, 'acme', { memory_mib: 4095 })
  expect(await refusal(() => rig.submit())).toBe('forbidden')
})

test('goal: a host that admits nothing new takes no build and reserves no VM, and accepted builds go on', async () => {
  const host = { isOpen: true }
  const admitNew = () => {
    if (!host.isOpen) throw new UnavailableFault('closed', 5_000)
  }
  using rig = open({}, { admitNew })
  const { id } = await rig.submit()
  host.isOpen = false
  expect(await refusal(() => rig.submit())).toBe('attestation_unavailable 5')
  expect(await refusal(() => rig.service.reserve(acme))).toBe('attestation_unavailable 5')
  expect([rig.rows(), rig.get(id)?.state]).toEqual([1, 'queued'])
  host.isOpen = true
  expect(await refusal(() => rig.submit())).toBe('accepted')
})
