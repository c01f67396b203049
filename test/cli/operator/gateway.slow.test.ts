// Goal: an operator makes, sees and revokes gateway keys by the program, and the gateway acts on it.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { offeredModels } from '../../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { createGatewayAuthenticate } from '../../../src/inference/keys/stored-keys.ts'
import { createClusterMetrics } from '../../../src/inference/metrics/cluster.ts'
import { createMetrics } from '../../../src/inference/metrics/requests.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { type AdminServer, listenAdmin } from '../../../src/operator/access/socket.ts'
import { createAdmin } from '../../../src/operator/api.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { prepareUsageAppend } from '../../../src/store/directory/usage/usage.query.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { NO_ADMINISTRATORS } from '../../rigs/admin.ts'
import { programArgv } from '../../rigs/program.ts'

/** Tests here start several processes one after the other. */
setDefaultTimeout(120_000)

const nowMs = Date.parse('2026-11-20T12:00:00.000Z')
const defaults = { requestsPerMinute: 600, tokensPerMinute: 1_000_000, concurrencyMax: 32 }
const logged: string[] = []
let dir: string
let store: Store
let server: AdminServer

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-gateway-cli-'))
  store = openStore(join(dir, 'strongroom.db'))
  for (const slug of ['acme', 'globex', 'initech'])
    insertOrganization(store.directory.db, { id: `id-${slug}`, slug, nowMs })
  const metrics = createMetrics({ models: ['tiny'], upstreams: ['local'], otherFamilies: () => [] })
  const tokens = { prompt: 3, completion: 4 }
  metrics.observe({
    operation: 'chat',
    model: 'tiny',
    upstream: 'local',
    status: 200,
    errorCode: null,
    tokens,
    durationMs: 5,
    firstChunkMs: 2,
    queueMs: 0,
  })
  const capacity = { memoryMib: 1, vcpus: 2, addresses: 3 }
  const notAskedHere = () => {
    throw new Error('these tests ask for nothing of this kind')
  }
  const admin = createAdmin({
    ...NO_ADMINISTRATORS,
    store,
    clock: { ...systemClock, nowMs: () => nowMs },
    random: systemRandom,
    log: createLogger({ level: 'debug', sink: line => logged.push(line), nowMs: () => nowMs }),
    mintKey,
    mintGatewayKey,
    offeredModels: offeredModels([]),
    gateway: 'off',
    cancelBuild: null,
    deleteInstance: notAskedHere,
    applyEgressLimits: notAskedHere,
    vm: notAskedHere,
    status: notAskedHere,
    clockGuard: createClockGuard(systemClock),
    leaks: notAskedHere,
    collectors: [metrics, createClusterMetrics({ store, capacity })],
    consoleDir: notAskedHere,
  })
  server = await listenAdmin(join(dir, 'admin.sock'), admin)
})
afterAll(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

async function run(...argv: string[]) {
  const child = Bun.spawn([...programArgv, ...argv], {
    env: { PATH: process.env.PATH ?? '', STRONGROOM_STATE_DIR: dir },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}

async function runJson(...argv: string[]): Promise<{ code: number; document: Record<string, unknown> }> {
  const { code, stdout, stderr } = await run(...argv, '--json')
  expect([argv, stderr]).toEqual([argv, ''])
  return { code, document: JSON.parse(stdout) }
}

function ask(path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`http://strongroom${path}`, { ...init, unix: join(dir, 'admin.sock') })
}

function isLetIn(key: string): boolean {
  const log = createLogger({ level: 'error', sink: () => {}, nowMs: () => nowMs })
  const authenticate = createGatewayAuthenticate({
    db: store.directory.db,
    clock: { nowMs: () => nowMs, monotonicMs: () => nowMs },
    log,
    defaults,
  })
  try {
    authenticate(new Headers({ authorization: `Bearer ${key}` }))
    return true
  } catch {
    return false
  }
}

test('goal: a key from its making to its end: shown once, listed without its secret, refused after revocation', async () => {
  const made = await run('gateway', 'key', 'create', 'acme')
  const key = made.stdout.trim()
  const prefix = key.split('_')[1] ?? ''
  expect(made.stdout).toMatch(/^gw_[a-z0-9]{8}_[a-z0-9]{32}\n$/)
  expect([made.code, made.stderr]).toEqual([
    0,
    `Gateway key ${prefix} of acme. It is not kept and cannot be shown again.\nThis host has seen the key and can act as its client. A client that makes its own with \`strongroom gateway key new\` prevents that.\nRevoke it with: strongroom gateway key revoke ${prefix}\n`,
  ])
  expect(isLetIn(key)).toBe(true)
  const listed = await runJson('gateway', 'key', 'list', 'acme')
  expect(listed).toEqual({
    code: 0,
    document: {
      keys: [
        {
          prefix,
          name: null,
          organization: 'acme',
          instance: null,
          state: 'active',
          made_by: 'host',
          requests_per_minute: null,
          tokens_per_minute: null,
          concurrency_max: null,
          models: null,
          aliases: null,
          budget_usd: null,
          budget_tokens: null,
          month_cost_usd: '0.000000000',
          month_tokens: 0,
          expires_at: null,
          created_at: '2026-11-20T12:00:00.000Z',
          last_used_at: '2026-11-20T12:00:00.000Z',
          revoked_at: null,
        },
      ],
    },
  })
  expect(JSON.stringify(listed)).not.toContain(key.split('_')[2] ?? key)
  const revoked = await run('gateway', 'key', 'revoke', prefix)
  expect([revoked.code, revoked.stdout]).toEqual([
    0,
    `prefix:              ${prefix}
name:                -
organization:        acme
instance:            -
state:               revoked
made by:             minted by the host
requests per minute: as configured
tokens per minute:   as configured
concurrency:         as configured
models:              all
aliases:             -
cost this month:     0.00 USD (no budget)
tokens this month:   0 (no budget)
created:             2026-11-20T12:00:00.000Z
expires:             never
last used:           2026-11-20T12:00:00.000Z
revoked:             2026-11-20T12:00:00.000Z
`,
  ])
  expect(isLetIn(key)).toBe(false)
  expect((await run('gateway', 'key', 'revoke', prefix)).code).toBe(0)
  const kinds = listEvents(store.ledger.db, { subject: 'id-acme', limit: 10 }).map(event => event.kind)
  expect(kinds).toEqual(['gateway_key.revoked', 'gateway_key.created'])
  const everything = [
    ...logged,
    ...readdirSync(dir)
      .filter(name => name !== 'admin.sock')
      .map(name => readFileSync(join(dir, name), 'latin1')),
  ]
  expect(everything.join('\n')).not.toContain(key.split('_')[2] ?? key)
})

test('goal: limits and the end that were asked for are what the key has', async () => {
  const terms = ['--requests-per-minute', '5', '--tokens-per-minute', '7000', '--concurrency', '2']
  const made = await runJson('gateway', 'key', 'create', 'globex', ...terms, '--expires', '2027-01-31')
  expect(made).toMatchObject({
    code: 0,
    document: {
      organization: 'globex',
      requests_per_minute: 5,
      tokens_per_minute: 7000,
      concurrency_max: 2,
      expires_at: '2027-01-31T00:00:00.000Z',
    },
  })
  const { prefix } = made.document
  const listed = await run('gateway', 'key', 'list', 'globex')
  expect(listed.stdout).toBe(
    `PREFIX    NAME  STATE   MADE BY             REQUESTS/MIN  TOKENS/MIN  CONCURRENT  EXPIRES               LAST USED  INSTANCE  MODELS  BUDGET
${prefix}  -     active  minted by the host  5             7000        2           2027-01-31T00:00:00Z  -          -         all     -
`,
  )
})

const REFUSALS: [argv: string[], code: number, error: { code: string; message: string }][] = [
  [['create', 'nobody'], 4, { code: 'not_found', message: 'there is no organization nobody' }],
  [['list', 'nobody'], 4, { code: 'not_found', message: 'there is no organization nobody' }],
  [['revoke', 'zzzzzzzz'], 4, { code: 'not_found', message: 'there is no gateway key with prefix zzzzzzzz' }],
  ...['0', '1.5', '-1', '1000001', 'many'].map((count): [string[], number, { code: string; message: string }] => [
    ['create', 'initech', '--requests-per-minute', count],
    2,
    {
      code: 'invalid_request',
      message: `option '--requests-per-minute <n>' argument '${count}' is invalid. It must be a whole number from 1 to 1000000.`,
    },
  ]),
  ...['2027-02-30', 'tomorrow', '2027-01-31T12:00:00+01:00', ''].map(
    (date): [string[], number, { code: string; message: string }] => [
      ['create', 'initech', '--expires', date],
      2,
      {
        code: 'invalid_request',
        message: `${JSON.stringify(date)} is no date (2027-01-31) or time in UTC (2027-01-31T12:00:00Z)`,
      },
    ],
  ),
  [
    ['create', 'initech', '--expires', '2026-11-20T12:00:00Z'],
    2,
    { code: 'invalid_request', message: '2026-11-20T12:00:00Z is not in the future' },
  ],
]

test('goal: what cannot be is refused by name, with its exit code, and makes no key', async () => {
  for (const [argv, code, error] of REFUSALS) {
    const refused = await runJson('gateway', 'key', ...argv)
    expect([argv, refused.code, refused.document]).toMatchObject([argv, code, { error }])
  }
  expect((await runJson('gateway', 'key', 'list', 'initech')).document).toEqual({ keys: [] })
})

test('goal: the socket itself refuses bodies and paths that are not of this interface, and keeps the paths of its nouns apart', async () => {
  const create = (body: unknown) =>
    ask('/organizations/initech/gateway-keys', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  const terms = { requests_per_minute: null, tokens_per_minute: null, concurrency_max: null, expires_at: null }
  for (const body of [{}, { ...terms, extra: 1 }, { ...terms, concurrency_max: 0 }, { ...terms, expires_at: 5 }, []]) {
    expect([body, (await create(body)).status]).toEqual([body, 400])
  }
  expect((await ask('/gateway-keys/x/nope')).status).toBe(404)
  for (const path of ['/gateway-keysx', '/metricsx', '/gateway-keys', '/organizations/initech/gateway-keysx']) {
    expect([path, (await ask(path)).status]).toEqual([path, 404])
  }
  expect(await (await ask('/organizations/initech')).json()).toMatchObject({ slug: 'initech', keys_active: 0 })
  expect(await (await ask('/organizations/initech/keys')).json()).toEqual({ keys: [] })
})

test('goal: metrics of both collectors, as text for Prometheus and as one document', async () => {
  const answer = await ask('/metrics')
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  const text = await answer.text()
  for (const line of ['gen_ai_server_request_duration_seconds_sum{', 'strongroom_vm_vcpus_limit 2\n']) {
    expect(text).toContain(line)
  }
  expect(await run('metrics')).toEqual({ code: 0, stdout: text, stderr: '' })
  expect(await runJson('metrics')).toEqual({ code: 0, document: { metrics: text } })
})

test('goal: every command has help with its usage, examples and the exit codes', async () => {
  const keyCommands = ['new', 'add', 'create', 'list', 'revoke'].map(name => `gateway key ${name}`)
  const commands = ['gateway', 'gateway key', ...keyCommands, 'metrics']
  for (const command of commands) {
    const { code, stdout } = await run(...command.split(' '), '--help')
    expect([command, code]).toEqual([command, 0])
    expect(stdout).toStartWith(`Usage: strongroom ${command}`)
    expect(stdout).toMatch(new RegExp(`Examples:\n {2}strongroom ${command}`))
    expect(stdout).toContain('Exit codes:\n  0  done')
  }
})

test('goal: usage of an organization as a table, as JSON and as CSV, and a wrong day is named', async () => {
  prepareUsageAppend(store.directory.db)([
    {
      id: 'u1',
      atMs: nowMs,
      organizationId: 'id-initech',
      keyPrefix: 'k1',
      instanceId: null,
      model: '=tiny',
      upstream: 'u',
      promptTokens: 10,
      completionTokens: 5,
      costNanoUsd: 1_500_000_000,
      outcome: 'completed',
      tokensSource: 'reported',
      endUser: null,
      tags: null,
      cachedTokens: 0,
    },
  ])
  const asked = ['gateway', 'usage', 'initech', '--from', '2026-11-01', '--to', '2026-11-30']
  expect((await run(...asked)).stdout).toContain('2026-11-20  k1   =tiny')
  expect(await run(...asked, '--by', 'model', '--format', 'csv')).toEqual({
    code: 0,
    stderr: '',
    stdout: "model,requests,prompt_tokens,completion_tokens,cost_usd\r\n'=tiny,1,10,5,1.500000000\r\n",
  })
  const { document } = await runJson(...asked, '--by', '')
  expect(document.total).toEqual({ requests: 1, prompt_tokens: 10, completion_tokens: 5, cost_usd: '1.500000000' })
  const wrong = await run('gateway', 'usage', 'initech', '--from', '2026-11-31', '--to', '2026-12-01')
  expect([wrong.code === 0, wrong.stderr]).toEqual([false, expect.stringContaining('2026-11-31')])
})

test('goal: models, names and limits of a key are set at its making and changed afterwards, one by one', async () => {
  const rules = ['--models', 'big, tiny', '--alias', 'gpt-4o=big', '--alias', 'fast=tiny']
  const made = await runJson('gateway', 'key', 'create', 'initech', ...rules, '--concurrency', '2')
  const prefix = String(made.document.prefix)
  const aliases = [
    { name: 'gpt-4o', model: 'big' },
    { name: 'fast', model: 'tiny' },
  ]
  expect(made.document).toMatchObject({ models: ['big', 'tiny'], aliases, concurrency_max: 2 })
  const set = async (...argv: string[]) => (await runJson('gateway', 'key', 'set', prefix, ...argv)).document
  expect(await set('--concurrency', 'default', '--tokens-per-minute', '9')).toMatchObject({
    models: ['big', 'tiny'],
    aliases,
    concurrency_max: null,
    tokens_per_minute: 9,
  })
  expect(await set('--no-aliases', '--models', 'tiny')).toMatchObject({ models: ['tiny'], aliases: null })
  expect(await set('--models', 'all', '--expires', '2027-01-31')).toMatchObject({
    models: null,
    expires_at: '2027-01-31T00:00:00.000Z',
  })
  const wrong = await run('gateway', 'key', 'set', prefix, '--models', 'tiny', '--alias', 'gpt-4o=big')
  expect([wrong.code === 0, wrong.stderr]).toEqual([false, expect.stringContaining('"gpt-4o" is for "big"')])
  expect(await set('--budget-usd', '12.5', '--budget-tokens', '9000')).toMatchObject({
    budget_usd: '12.500000000',
    budget_tokens: 9000,
    month_tokens: 0,
  })
  expect((await run('gateway', 'key', 'list', 'initech')).stdout).toContain('0.00/12.50 USD 0/9000 tokens')
  expect(await set('--budget-usd', 'none')).toMatchObject({ budget_usd: null, budget_tokens: 9000 })
  expect((await runJson('org', 'budget', 'initech', '--usd', '250')).document).toMatchObject({
    budget_usd: '250.000000000',
    budget_tokens: null,
  })
  expect((await run('gateway', 'key', 'set', prefix, '--budget-usd', '1e3')).stderr).toContain('budget_usd')
  expect((await run('gateway', 'key', 'set', prefix, '--alias', 'nothing')).stderr).toContain('a name and a model')
})
