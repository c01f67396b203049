// Goal: what goes wrong on a host for real is a problem in status, doctor, the console, the metrics and the alerts,
// with one line in the log; what is put right leaves them. Whole appliances in a namespace, without VMs. Needs root.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { type Serving, serve } from '../../src/appliance/appliance.ts'
import { noteFailed, noteMade } from '../../src/backup/last.ts'
import { createLogger, silentLogger } from '../../src/base/log.ts'
import type { Check } from '../../src/cli/doctor/check.ts'
import { withProblems } from '../../src/cli/doctor/problems.plan.ts'
import { statusText } from '../../src/cli/operator/status.ts'
import { defaultConfig } from '../../src/config/load.ts'
import type { Config } from '../../src/config/schema.ts'
import type { AdminStatus } from '../../src/contract/admin/admin.ts'
import type { AlertMessage } from '../../src/contract/admin/alerts.ts'
import type { HostProblem, ProblemName } from '../../src/contract/admin/problems.ts'
import { openStore } from '../../src/store/db.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { writeClockMark } from '../../src/store/ledger/clock-mark.query.ts'
import { paintFor } from '../../src/terminal/render.ts'
import { upgradePaths, writeRecord } from '../../src/upgrade/record.ts'
import { cookieOf, pageHeaders } from '../rigs/console/console.ts'
import { fillDisk, smallDisk } from '../rigs/small-disk.ts'
import { sampleRecord } from '../rigs/upgrade/record.ts'

const timeoutMs = 60_000
const parent = mkdtempSync(join(tmpdir(), 'srt-problems-'))
const stateDir = join(parent, 'state')
afterAll(() => rmSync(parent, { recursive: true }))

type Change = { readonly [Section in keyof Config]?: Partial<Config[Section]> }

/** Nothing is wrong with this host. */
const GOOD = {
  platform: 'tcg',
  domain: 'a.example',
  listen: { instances: '127.0.0.1:0', inference: '', builds: '', dns: '', console: '127.0.0.1:0' },
  vm: { tpm: 'off' },
  // The probe of firewalls has a test of its own.
  network: { probe_peers: [] },
  capacity: { memory_mib: 8_192, vcpus: 8 },
} as const satisfies Change

function configWith(change: Change): Config {
  const config: Record<string, unknown> = { ...defaultConfig() }
  for (const layer of [GOOD, change]) {
    for (const [name, value] of Object.entries(layer)) {
      config[name] = typeof value === 'object' ? { ...Object(config[name]), ...value } : value
    }
  }
  return config as Config
}

/** Where operators see problems. */
type Places = {
  readonly status: AdminStatus
  readonly text: string
  readonly metrics: string
  readonly page: AdminStatus
}

const tls = { rejectUnauthorized: false }

/** Logs in at the console once for each host: a full disk refuses a log-in, because it cannot be recorded. */
const cookies = new WeakMap<Serving, string>()
async function cookieFor(serving: Serving): Promise<string> {
  const known = cookies.get(serving)
  if (known !== undefined) return known
  const link = await fetch('http://operator/console/links', {
    ...{ unix: serving.adminSocket, method: 'POST', body: '{}', headers: { 'content-type': 'application/json' } },
  } as RequestInit)
  const origin = serving.consoleUrl ?? ''
  const token = new URL(((await link.json()) as { url: string }).url).hash.slice('#token='.length)
  const body = JSON.stringify({ token })
  const session = await fetch(`${origin}/api/session`, { method: 'POST', headers: pageHeaders(origin), body, tls })
  const cookie = cookieOf(session)
  cookies.set(serving, cookie)
  return cookie
}

async function placesOf(serving: Serving): Promise<Places> {
  const ask = (path: string) => fetch(`http://operator${path}`, { unix: serving.adminSocket } as RequestInit)
  const headers = pageHeaders(serving.consoleUrl ?? '', await cookieFor(serving))
  const shown = await fetch(`${serving.consoleUrl}/api/operator/status`, { headers, tls })
  const status = (await (await ask('/status')).json()) as AdminStatus
  return {
    status,
    text: statusText(status, paintFor(false)),
    metrics: await (await ask('/metrics')).text(),
    page: (await shown.json()) as AdminStatus,
  }
}

/** Waits until the host has this problem, and looks for it in all places. */
async function seen(serving: Serving, name: ProblemName, fits: Partial<HostProblem>): Promise<void> {
  const has = ({ problems }: AdminStatus) =>
    problems.find(problem => problem.name === name && (fits.subject === undefined || problem.subject === fits.subject))
  const status = async () => {
    const response = await fetch('http://operator/status', { unix: serving.adminSocket } as RequestInit)
    return (await response.json()) as AdminStatus
  }
  await until(`it has the problem ${name}`, timeoutMs, async () => has(await status()) !== undefined)
  const places = await placesOf(serving)
  const problem = has(places.status)
  // A copy, because this matcher writes into what it is given.
  expect(structuredClone(problem)).toMatchObject(fits)
  expect([name, has(places.page)?.detail.length]).toEqual([name, problem?.detail.length])
  expect(places.text).toMatch(new RegExp(`^${name}: +${problem?.severity} since `, 'm'))
  expect(places.metrics).toMatch(new RegExp(`^strongroom_problem\\{name="${name}"\\} [1-9]`, 'm'))
  expect(places.metrics).toContain(`strongroom_problem_since_timestamp_seconds{name="${name}",`)
  const checks: Check[] = withProblems([], places.status.problems)
  expect(checks.map(({ detail }) => detail).join('\n')).toContain(problem?.detail.slice(0, 20) ?? 'nothing')
  const isCritical = places.status.problems.some(({ severity }) => severity === 'critical')
  expect([places.status.ready, places.page.ready]).toEqual([!isCritical, !isCritical])
  expect(places.metrics).toContain(`\nstrongroom_ready ${isCritical ? 0 : 1}\n`)
  expect(places.text).toMatch(isCritical ? /^ready: +no$/m : /^ready: +yes$/m)
}

async function withHost(change: Change, use: (serving: Serving) => Promise<void>, lines: string[] = []): Promise<void> {
  const log = createLogger({ level: 'info', sink: line => lines.push(line), nowMs: Date.now })
  const serving = await serve(configWith(change), { stateDir, log, onTrial: false })
  try {
    await use(serving)
  } finally {
    await serving.stop()
  }
}

/** With an organization there are clients who know the names of the host. */
function addOrganization(): void {
  const store = openStore(join(stateDir, 'strongroom.db'))
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: Date.now() })
  store.close()
}

function failInstances(code: string, count: number): void {
  const store = openStore(join(stateDir, 'strongroom.db'))
  const { db } = store.directory
  for (let at = 0; at < count; at += 1) {
    const name = `abcdefg${at}`
    insertInstance(db, {
      ...{ id: `i${at}`, hostId: store.hostId, organizationId: 'o', name, hostname: `${name}.a.example` },
      ...{ agent: 'opencode', publicKey: 'ssh-ed25519 A', inferenceMode: 'gateway', inferenceModel: 'm' },
      ...{ vmId: null, platform: 'tcg', nowMs: Date.now() },
    })
    const move = { id: `i${at}`, from: 'provisioning', to: 'failed', failureCode: code, failureMessage: code } as const
    expect(moveInstance(db, { ...move, nowMs: Date.now() })).toBe(true)
  }
  store.close()
}

/** The clock of a host that shows an earlier time than its records. */
function wroteInTheFuture(): void {
  const store = openStore(join(stateDir, 'strongroom.db'))
  writeClockMark(store.ledger.db, { bootId: 'before', uptimeMs: 0, wallMs: Date.now() + 400 * 86_400_000 })
  store.close()
}

inOwnNetns(
  import.meta.path,
  () => {
    test('goal: a host with nothing wrong is ready, and no place names a problem', async () => {
      await withHost({}, async serving => {
        const { status, text, metrics, page } = await placesOf(serving)
        expect([status.ready, status.problems, page.problems]).toEqual([true, [], []])
        expect(text).toMatch(/^ready: +yes\nproblems: +none is known\n/)
        expect(metrics).toContain('\nstrongroom_ready 1\n')
        expect(metrics).not.toMatch(/^strongroom_problem\{.*\} [1-9]/m)
      })
    })

    test('goal: faults of the configuration, the host and its services', async () => {
      addOrganization()
      const lines: string[] = []
      const messages: AlertMessage[] = []
      using hook = Bun.serve({
        ...{ hostname: '127.0.0.1', port: 0 },
        fetch: async request => {
          messages.push((await request.json()) as AlertMessage)
          return new Response(null, { status: 204 })
        },
      })
      const notified = (name: ProblemName) => messages.some(({ began }) => began.some(problem => problem.name === name))
      await withHost(
        {
          domain: 'b.example',
          listen: { ...GOOD.listen, inference: '127.0.0.1:0' },
          inference: { placement: 'host', upstreams: [UPSTREAM] },
          vm: { tpm: 'auto', swtpm: '/nonexistent/swtpm', image_dir: '/nonexistent' },
          pool: { warm: 1 },
          alerts: { webhook_url: `http://127.0.0.1:${hook.port}/`, after_s: 0, group_s: 0 },
        },
        async serving => {
          await seen(serving, 'tpm', { severity: 'warning' })
          await seen(serving, 'former_names', { severity: 'warning', detail: expect.stringContaining('a.example') })
          await seen(serving, 'authority', { severity: 'warning' })
          await seen(serving, 'pool', { severity: 'warning' })
          noteFailed(stateDir, { error: new Error('no space'), nowMs: Date.now() })
          await seen(serving, 'backup', { severity: 'warning', detail: expect.stringContaining('no space') })
          failInstances('host_restarted', 1)
          await seen(serving, 'instances', { subject: 'host_restarted', severity: 'warning' })
          await seen(serving, 'upstream', { subject: 'u', severity: 'warning' })
          await seen(serving, 'models', { severity: 'critical', detail: expect.stringContaining('(m)') })
          noteMade(stateDir, { at: new Date().toISOString(), file: '/b.age', bytes: 1 })
          const problemsNow = async () => (await placesOf(serving)).status.problems.map(({ name }) => name)
          expect(await problemsNow()).not.toContain('backup')
          await until('each has its line', timeoutMs, () => lines.some(line => line.includes('problem models')))
          const all = ['tpm', 'former_names', 'authority', 'instances', 'upstream', 'models'] as const
          await until('each is notified', timeoutMs, () => all.every(notified))
          expect(messages[0]).toMatchObject({ version: 1, kind: 'problems', host: { domain: 'b.example' } })
          const test = { unix: serving.adminSocket, method: 'POST' } as RequestInit
          const answer = await fetch('http://operator/alerts/test', test)
          const target = `http://127.0.0.1:${hook.port}`
          expect(await answer.json()).toEqual({
            results: [{ receiver: 'webhook', ok: true, detail: target, remedy: null }],
          })
          expect(messages.at(-1)?.kind).toBe('test')
        },
        lines,
      )
      const begun = lines.flatMap(line => /"message":"problem ([a-z_]+)[^"]*: /.exec(line)?.[1] ?? [])
      expect(begun).toContain('models')
      expect(begun.filter(name => name === 'upstream')).toHaveLength(1)
    })

    test('goal: a gateway without a VM, a gateway without a model, a full disk, and an upgrade on trial', async () => {
      rmSync(stateDir, { recursive: true })
      mkdirSync(stateDir)
      const listen = { ...GOOD.listen, inference: '127.0.0.1:7443' }
      const dead = { directory: 'https://127.0.0.1:9/directory', terms_agreed: true, http_listen: '127.0.0.1:7480' }
      const small: Change = {
        listen: { ...listen, builds: '127.0.0.1:0' },
        capacity: { memory_mib: 1_024, vcpus: 8 },
        inference: { placement: 'vm' },
        builds: { warm: 1, image_dir: '/nonexistent' },
        tls: { validity_days: 10, renew_before_days: 1, acme: { ...defaultConfig().tls.acme, ...dead } },
      }
      await withHost(small, async serving => {
        await seen(serving, 'certificate', { subject: 'server', severity: 'warning' })
        await seen(serving, 'acme', { subject: 'instances.a.example', severity: 'critical' })
        await seen(serving, 'builds', { severity: 'warning' })
        await seen(serving, 'capacity', { severity: 'warning', detail: expect.stringContaining('memory') })
        await seen(serving, 'gateway', { severity: 'critical' })
      })
      wroteInTheFuture()
      await withHost({}, async serving => {
        await seen(serving, 'clock', {
          severity: 'critical',
          detail: expect.stringContaining('behind what is certain'),
        })
      })
      {
        using _ = smallDisk(stateDir, 300)
        await withHost({ listen, inference: { placement: 'host' } }, async serving => {
          await seen(serving, 'models', { severity: 'critical', detail: expect.stringContaining('is configured') })
          await seen(serving, 'disk', { severity: 'warning' })
          const ballast = fillDisk(stateDir)
          await seen(serving, 'disk', { severity: 'critical' })
          unlinkSync(ballast)
          await seen(serving, 'disk', { severity: 'warning' })
        })
      }
      mkdirSync(join(stateDir, 'upgrade'), { recursive: true })
      writeRecord(upgradePaths(stateDir), sampleRecord(stateDir, { phase: 'trial' }))
      const serving = await serve(configWith({}), { stateDir, log: silentLogger, onTrial: true })
      const status = await (await fetch('http://operator/status', { unix: serving.adminSocket } as RequestInit)).json()
      await serving.stop()
      expect(status).toMatchObject({ ready: false, problems: [{ name: 'upgrade', severity: 'critical' }] })
    })
  },
  { timeoutMs: 300_000 },
)

const UPSTREAM: Config['inference']['upstreams'][number] = {
  ...{
    name: 'u',
    url: 'http://127.0.0.1:9/v1',
    models: ['m'],
    engine: 'openai',
    key_file: '',
    embedding_models: [],
    weight: 1,
    concurrency_max: 1,
  },
  ...{ choices_max: 1, context_tokens: 0, content: [], remote_urls: false, ca_file: '', spki_sha256: '' },
  ...{ spki_sha256_next: '', attestation: '', attestation_policy: '', attestation_collateral: '' },
  ...{ attestation_path: '/attestation', attestation_minutes: 30, attestation_simulated_root: '' },
}
