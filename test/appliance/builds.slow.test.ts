// Service C as the appliance composes it: over HTTPS, with keys of service A and the configured files.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { certainClock } from '../../scripts/rigs/build/builds-service.ts'
import { writeBuilderImage } from '../../scripts/rigs/build/image-directory.ts'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { simulatedTrust } from '../../scripts/rigs/guest/attested-guest.ts'
import { addKey } from '../../scripts/rigs/instances/instances-service.ts'
import { nobodyLogs } from '../../scripts/rigs/transparency.ts'
import { failure } from '../../scripts/rigs/until.ts'
import { buildVmShape, composeBuilds, dismissBuildVms, serveBuilds } from '../../src/appliance/builds.ts'
import type { Engine } from '../../src/appliance/engine.ts'
import { SINGLE_HOST_LINK } from '../../src/appliance/fleet/directory.ts'
import { NO_FLEET_PEERS } from '../../src/appliance/fleet/peers.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { type LogLevel, silentLogger } from '../../src/base/log.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { createTls } from '../../src/http/certificate.ts'
import { MaintenanceMode } from '../../src/operator/maintenance/mode.ts'
import { RequestCounts } from '../../src/operator/metrics/request-counts.ts'
import { openStore } from '../../src/store/db.ts'
import { insertVm } from '../../src/store/ledger/vm.query.ts'
import { openGate } from '../../src/upgrade/gate.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-compose-builds-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const dismissed: string[] = []
const engine = {
  platform: 'tcg',
  capacity: { memoryMib: 65_536, vcpus: 16, addresses: 14, asids: null, bootingMax: 2 },
  diskGibMax: () => 1_000,
  images: { hasPassed: () => false },
  reconciler: {
    builds: {},
    define: () => {},
    dismiss: (vmId: string) => void dismissed.push(vmId),
    view: () => null,
    onChange: () => {},
  },
} as unknown as Engine

function partsOf(toml: string) {
  const verdict = parseConfig(`[listen]\nbuilds = "127.0.0.1:0"\n[builds]\n${toml}`, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  const { config } = verdict
  const store = openStore(':memory:')
  const common = {
    ...nobodyLogs,
    ...{ link: SINGLE_HOST_LINK, peers: NO_FLEET_PEERS },
    clock: certainClock,
    clockGuard: createClockGuard(certainClock),
    random: systemRandom,
    log: silentLogger,
    strangers: { level: (level: LogLevel) => level },
  }
  const operatorKey = { digest: new Uint8Array(48) }
  const maintenance = new MaintenanceMode(store, { clock: certainClock, log: silentLogger })
  return {
    ...common,
    maintenance,
    gate: openGate,
    config,
    stateDir: dir,
    store,
    engine,
    operatorKey,
    trust: simulatedTrust,
  }
}

async function serve(toml: string) {
  const parts = partsOf(toml)
  const tls = await createTls({ ...parts, onEvent: () => {} })
  const builds = composeBuilds(parts)
  const server = serveBuilds(builds, { ...parts, tls, requests: new RequestCounts() })
  const get = (path: string, init: RequestInit = {}) =>
    fetch(`https://127.0.0.1:${server.port}${path}`, { ...init, tls: { rejectUnauthorized: false } } as RequestInit)
  const key = addKey(parts.store.directory, { nowMs: certainClock.nowMs } as never, 'acme', 'write')
  return {
    get,
    key,
    maintenance: parts.maintenance,
    names: tls.current().names,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      await builds.stop()
      await tls.stop()
      parts.store.close()
    },
  }
}

const body = (nonce: string) => JSON.stringify({ nonce, source_data: 'AAAA' })

test('goal: service C answers over HTTPS under a name of its own, and takes builds of who has a key of service A', async () => {
  await using service = await serve('')
  expect(await (await service.get('/health')).text()).toBe('ok')
  expect(service.names).toContain('DNS:builds.agents.internal')
  expect((await service.get('/build', { method: 'POST', body: body('00') })).status).toBe(401)
  const headers = { authorization: `Bearer ${service.key}` }
  expect((await service.get('/build', { method: 'POST', headers, body: body('00') })).status).toBe(200)
  const document = (await (await service.get('/openapi.json')).json()) as { info: { title: string } }
  expect(document.info.title).toBe('Strongroom attested builds')
})

test('goal: in maintenance a build is a 503 with the words of the operator, and each response has the notice', async () => {
  await using service = await serve('')
  const headers = { authorization: `Bearer ${service.key}` }
  const post = (nonce: string) => service.get('/build', { method: 'POST', headers, body: body(nonce) })
  service.maintenance.begin({ until: null, message: 'a disk is replaced' })
  const refused = await post('00')
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '600'])
  expect(await refused.text()).toContain('Message of the operator: a disk is replaced')
  for (const response of [refused, await service.get('/health')]) {
    expect(response.headers.get('x-strongroom-maintenance')).toContain('message="a disk is replaced"')
  }
  service.maintenance.end()
  const accepted = await post('00')
  expect([accepted.status, accepted.headers.get('x-strongroom-maintenance')]).toEqual([200, null])
})

test('goal: an open service takes builds of anybody, so many a minute from one address', async () => {
  await using service = await serve('auth = "open"\nrequests_per_minute = 2')
  const post = (nonce: string) => service.get('/build', { method: 'POST', body: body(nonce) })
  expect([(await post('00')).status, (await post('01')).status]).toEqual([200, 200])
  const third = await post('02')
  expect([third.status, Number(third.headers.get('retry-after')) > 0]).toEqual([429, true])
})

test('goal: authorities that are none are a fault of the named file', async () => {
  writeFileSync(join(dir, 'none.pem'), 'hello')
  for (const file of ['none.pem', 'missing.pem']) {
    const parts = partsOf(`fetch_hosts = ["git.example"]\nfetch_ca_file = "${join(dir, file)}"`)
    const fault = await failure(Promise.resolve().then(() => composeBuilds(parts)))
    expect(fault).toMatchObject({ code: 'config.file', param: 'builds.fetch_ca_file' })
    parts.store.close()
  }
})

test('goal: no VM is kept or reserved of an image without provenance, and the operator reads what to do', async () => {
  const image = join(dir, 'image')
  await writeBuilderImage(image, 3)
  const parts = partsOf(`image_dir = ${JSON.stringify(image)}`)
  const builds = composeBuilds(parts)
  const reserve = () =>
    parts.store.directory.transact(tx => builds.vms.reserve(tx, { organizationId: null, expiresAtMs: 1_000_000 }))
  expect(reserve()).not.toBeNull()
  rmSync(join(image, 'provenance.json'))
  expect([reserve(), builds.vms.status().lacking]).toEqual([null, expect.stringContaining('build-image.ts builder')])
  await builds.stop()
  parts.store.close()
})

test('goal: where the service is switched off, VMs of builds go and those of instances stay', () => {
  const { store } = partsOf('')
  const common = { hostId: store.hostId, vcpus: 1, memoryMib: 1024, nowMs: 0 }
  insertVm(store.ledger.db, { ...common, id: 'vm-build', image: 'builder' })
  insertVm(store.ledger.db, { ...common, id: 'vm-instance', image: 'instance' })
  dismissed.length = 0
  dismissBuildVms({ store, engine, log: silentLogger })
  expect(dismissed).toEqual(['vm-build'])
  store.close()
})

test('goal: a warm VM whose disks, processor, way of booting or operator key are no longer those of now is of another shape', () => {
  const shapeOf = (builds: string, vm = '', key = 1) => {
    const verdict = parseConfig(`[builds]\n${builds}\n[vm]\n${vm}\n`, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    return buildVmShape(verdict.config, 'snp', new Uint8Array(48).fill(key))
  }
  const changes = ['vcpus = 1', 'memory_mib = 8192', 'scratch_gib = 30', 'exchange_gib = 4'].map(text => shapeOf(text))
  const ofVms = ['snp_boot = "igvm"', 'vcpu_type = "EPYC-Genoa"'].map(text => shapeOf('', text))
  expect(new Set([shapeOf(''), ...changes, ...ofVms, shapeOf('', '', 2)]).size).toBe(8)
  expect(shapeOf('build_seconds = 60', 'igvm = "/instance.igvm"')).toBe(shapeOf(''))
})
