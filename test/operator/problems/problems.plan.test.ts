// Goal: each thing that is wrong with a host is a problem with name, severity, effect and remedy; a host that serves no
// model or has failed instances is never called good.

import { expect, test } from 'bun:test'
import { defaultConfig } from '../../../src/config/load.ts'
import type { AdminStatus } from '../../../src/contract/admin/admin.ts'
import { isReady, PROBLEM_NAMES } from '../../../src/contract/admin/problems.ts'
import { servedNames } from '../../../src/operator/problems/certificates.plan.ts'
import type { ObservedUpstream } from '../../../src/operator/problems/gateway.plan.ts'
import { type ProblemFacts, problemsIn } from '../../../src/operator/problems/problems.plan.ts'
import { STATUS } from '../../rigs/admin-status.ts'

const nowMs = Date.parse('2026-11-26T12:00:00.000Z')
const hourMs = 3_600_000
const at = (agoMs: number) => new Date(nowMs - agoMs).toISOString()
const { problems: _, ready: _ready, ...bare } = STATUS

const GOOD: ProblemFacts = {
  status: bare,
  nowMs,
  failures: { byCode: [], lastReadyMs: null },
  gateway: { upstreams: [], gatewayVms: [] },
  journal: { tableRestoredMs: null, authorityReplacedMs: null },
  pausedVms: [],
  instance: { memoryMib: 1, vcpus: 1 },
  acme: { directory: 'https://acme.example', httpListen: '0.0.0.0:80' },
  ownCertificate: {
    ...{ certificateFile: '/etc/tls/own.pem', keyFile: '/etc/tls/own.key' },
    names: ['instances.a.example', 'inference.a.example'],
  },
}

const status = (change: Partial<AdminStatus>): ProblemFacts => ({ ...GOOD, status: { ...bare, ...change } })
const tls = (change: Partial<AdminStatus['tls']>) => status({ tls: { ...bare.tls, ...change } })
const journal = (change: Partial<ProblemFacts['journal']>) => ({ ...GOOD, journal: { ...GOOD.journal, ...change } })
const ends = (name: 'server' | 'authority' | 'guest' | 'guest_authority', days: number) =>
  tls({ certificates: [{ name, expires_at: at(-days * 24 * hourMs) }] })

const up: ObservedUpstream = {
  ...{ name: 'u', models: ['m', 'n'], isWorker: false },
  ...{ problem: null, isDown: false, sinceMs: null },
}
const down = { ...up, name: 'd', problem: 'it does not answer', isDown: true }
const gateway = (
  upstreams: readonly ObservedUpstream[],
  change: Partial<AdminStatus['gateway']> = {},
): ProblemFacts => ({
  ...status({ gateway: { ...bare.gateway, placement: 'host', ...change } }),
  gateway: { upstreams, gatewayVms: [] },
})
const vmRow: ProblemFacts['gateway']['gatewayVms'][number] = {
  ...{ vm: 'v1', state: 'serving', address: '10.88.0.2', since: at(2 * hourMs), current: true },
  ...{ workload_sha256: null, keys_revision: 1, requests_running: 0, usage_waiting: 3, usage_booked: 7 },
  ...{ usage_waiting_since: at(60_000), problem: null, reason: null },
}

type AcmeName = NonNullable<AdminStatus['tls']['acme']>[number]
const acme = (change: Partial<AcmeName>) => {
  const there = { expires_at: at(-60 * 24 * hourMs), next_at: at(-24 * hourMs), failure: null }
  return tls({ acme: [{ name: 'i.example', holder: 'host', ...there, ...change }] })
}
const noProof = { at: at(hourMs), type: 'urn:ietf:params:acme:error:dns', detail: 'NXDOMAIN' }

const failed = (code: string, sinceReady: number, agoMs = 60_000) => ({
  ...{ code, count: 2, sinceReady },
  ...{ firstMs: nowMs - agoMs - 1_000, lastMs: nowMs - agoMs },
})
const failures = (lastReadyMs: number | null, ...byCode: ReturnType<typeof failed>[]) => ({
  ...GOOD,
  failures: { byCode, lastReadyMs },
})

const fleet: NonNullable<AdminStatus['fleet']> = {
  ...{ database: 'postgres://a@b/c', name: 'rack-1', is_reachable: true, since: at(hourMs), problem: null },
  ...{ has_lease: true, is_draining: false, epoch: 1, peer_address: null, peers: [] },
}
const pool = { wanted: 2, warm: 1, booting: 0, lacking: null, next_attempt_at: null }
const lost = { at: at(hourMs), reason: 'QEMU ended' }
const builds = { states: {}, wanted: 1, warm: 0, booting: 0, reserved: 0, disk_bytes: 0 }

const TABLE: [string, ProblemFacts, string[]][] = [
  ['a good host', GOOD, []],
  ['a gateway that is off', gateway([], { placement: 'off' }), []],
  ['a gateway without a model', gateway([]), ['critical models']],
  ['a gateway whose upstream is down', gateway([down]), ['critical models', 'warning upstream d']],
  ['one of two upstreams of the same models down', gateway([up, down]), ['warning upstream d']],
  ['one model of two down', gateway([{ ...up, models: ['m'] }, down]), ['critical models', 'warning upstream d']],
  ['an upstream that lists no models', gateway([{ ...down, isDown: false }]), ['warning upstream d']],
  [
    'an upstream without evidence',
    gateway([up], {
      attested_upstreams: [{ name: 'u', kind: 'snp', attested: false, last_good_at: null, age_s: null, failures: [] }],
    }),
    ['critical models', 'warning upstream u'],
  ],
  ['no gateway VM', gateway([up], { placement: 'vm' }), ['critical gateway']],
  ['a gateway VM that starts', gateway([up], { placement: 'vm', state: 'starting', vm: 'v' }), ['critical gateway']],
  ['one that serves', gateway([up], { placement: 'vm', state: 'serving', vm: 'v' }), []],
  [
    'one that serves without its worker',
    gateway([up, { ...down, isWorker: true }], { placement: 'vm', state: 'serving', vm: 'v', problem: 'the worker' }),
    ['warning gateway', 'warning upstream d'],
  ],
  [
    'usage that waits for a minute',
    { ...gateway([up]), gateway: { upstreams: [up], gatewayVms: [vmRow] } },
    ['critical usage v1'],
  ],
  [
    'usage that waits for less',
    {
      ...gateway([up]),
      gateway: { upstreams: [up], gatewayVms: [{ ...vmRow, usage_waiting_since: at(59_999) }] },
    },
    [],
  ],
  ['failed instances', failures(null, failed('host_restarted', 2)), ['warning instances host_restarted']],
  ['a code of another release', failures(null, failed('odd', 2)), ['warning instances odd']],
  [
    'creates that all fail',
    failures(null, failed('ssh_unreachable', 2), failed('host_restarted', 2)),
    ['critical instances ssh_unreachable', 'warning instances host_restarted'],
  ],
  ['one failure', failures(null, failed('ssh_unreachable', 1)), ['warning instances ssh_unreachable']],
  [
    'failures of yesterday',
    failures(null, failed('ssh_unreachable', 2, hourMs)),
    ['warning instances ssh_unreachable'],
  ],
  [
    'failures before one became ready',
    failures(nowMs - 30_000, failed('ssh_unreachable', 2)),
    ['warning instances ssh_unreachable'],
  ],
  ['a paused VM', { ...GOOD, pausedVms: [{ vm: 'v', sinceMs: nowMs - hourMs }] }, ['critical vm_paused']],
  ['a table that was restored', journal({ tableRestoredMs: nowMs - 23 * hourMs }), ['warning firewall_table']],
  ['a table that was restored long ago', journal({ tableRestoredMs: nowMs - 25 * hourMs }), []],
  ['a new authority', journal({ authorityReplacedMs: nowMs - hourMs }), ['warning authority']],
  ['an authority of last week', journal({ authorityReplacedMs: nowMs - 8 * 24 * hourMs }), []],
  ['former names', tls({ former: { names: ['a.example'], until: at(-hourMs) } }), ['warning former_names']],
  [
    'a clock that is held',
    status({ clock: { ...bare.clock, state: 'held', problem: 'it is ahead', remedy: 'confirm' } }),
    ['critical clock'],
  ],
  ['a certificate for two weeks', ends('server', 14), []],
  ['a certificate that ends soon', ends('server', 13.9), ['warning certificate server']],
  ['an authority that ends within half a year', ends('authority', 179), ['warning certificate authority']],
  ['an authority that ends in half a year', ends('authority', 180), []],
  ['the authority of guests', ends('guest_authority', 179.9), ['warning certificate guest_authority']],
  ['a certificate for guests', ends('guest', 13.9), ['warning certificate guest']],
  ['a certificate that has ended', ends('server', 0), ['critical certificate server']],
  ['a name by ACME', acme({}), []],
  ['a first order under way', acme({ expires_at: null, next_at: null }), ['warning acme i.example']],
  ['a renewal that failed, with time left', acme({ failure: noProof }), ['warning acme i.example']],
  [
    'a renewal that failed for long',
    acme({ expires_at: at(-4 * 24 * hourMs), failure: noProof }),
    ['critical acme i.example'],
  ],
  ['a first order that failed', acme({ expires_at: null, failure: noProof }), ['critical acme i.example']],
  [
    'old collateral',
    status({
      collateral: {
        ...{ product: 'genoa', veks: 1, vek_fetched_at: null, chain_fetched_at: null, crl_fetched_at: null },
        ...{ crl_next_update: null, state: 'soon', problem: 'the CRL ends', remedy: 'fetch it' },
      },
    }),
    ['warning collateral'],
  ],
  [
    'a log that waits for its witness',
    status({
      log: {
        ...{ size: 3, shown: 2, last_entry_at: null, waiting_since: null, witnesses: 1 },
        problems: [
          { witness: null, severe: true, detail: 'entries wait', remedy: 'ask' },
          { witness: 'w', severe: false, detail: 'it fails', remedy: 'ask' },
        ],
      },
    }),
    ['critical log', 'warning log w'],
  ],
  ['a full host', { ...GOOD, instance: { memoryMib: 2, vcpus: 1 } }, ['warning capacity']],
  [
    'a full host with a warm VM',
    { ...status({ pool: { ...pool, last_failure: null } }), instance: { memoryMib: 2, vcpus: 1 } },
    [],
  ],
  ['a pool that loses VMs', status({ pool: { ...pool, last_failure: lost } }), ['warning pool']],
  ['a pool that lost one and is full', status({ pool: { ...pool, warm: 2, last_failure: lost } }), []],
  ['builds without an image', status({ builds: { ...builds, lacking: 'no image' } }), ['warning builds']],
  ['builds that lack nothing', status({ builds: { ...builds, lacking: null } }), []],
  [
    'a failed backup',
    status({
      backups: {
        ...{ state: 'failed', last: null, failure: { at: at(hourMs), message: 'no space' }, nightly: true },
        ...{ problem: 'the backup failed', remedy: 'make room' },
      },
    }),
    ['warning backup'],
  ],
  [
    'budgets that are nearly spent',
    status({ budgets_near: [{ organization: 'acme', key: null, period: '2026-11', kind: 'usd', percent: 81 }] }),
    ['warning budget acme usd 2026-11'],
  ],
  ['a member of a fleet', status({ fleet }), []],
  [
    'a fleet whose database is away',
    status({ fleet: { ...fleet, is_reachable: false } }),
    ['warning fleet the database'],
  ],
  [
    'a fleet whose database is away, and a host of that name',
    status({
      fleet: { ...fleet, is_reachable: false, peers: [{ name: 'database', is_reached: false, problem: null }] },
    }),
    ['warning fleet the database', 'warning fleet database'],
  ],
  [
    'a fleet with a host that is away',
    status({ fleet: { ...fleet, peers: [{ name: 'rack-2', is_reached: false, problem: null }] } }),
    ['warning fleet rack-2'],
  ],
  [
    'traces that nobody takes',
    gateway([up], { traces: { exported: 0, dropped: 1, waiting: 2, problem: 'it refuses them' } }),
    ['warning traces'],
  ],
  ['no swtpm', status({ tpm: 'missing' }), ['warning tpm']],
]

test.each(TABLE)('goal: the problems of %s', (_, facts, expected) => {
  const problems = problemsIn(facts)
  const shown = problems.map(({ name, subject, severity }) =>
    [severity, name, ...(subject === null ? [] : [subject])].join(' '),
  )
  expect(shown).toEqual(expected)
  for (const { detail, remedy } of problems) expect([detail.length > 5, remedy.length > 2]).toEqual([true, true])
  expect(isReady(problems)).toBe(!expected.some(text => text.startsWith('critical')))
})

test('goal: every problem that follows from facts stands in the table', () => {
  const seen = new Set(TABLE.flatMap(([, , expected]) => expected.map(text => text.split(' ')[1])))
  // The others are found by sources of their own.
  const others = ['upgrade', 'database', 'status_unknown', 'disk', 'firewall', 'snapshots', 'leaks', 'alerts']
  expect([...seen, ...others].toSorted()).toEqual([...PROBLEM_NAMES].toSorted())
})

test('goal: the words of a certificate say whose it is, and the remedy is for that one', () => {
  const texts = (name: Parameters<typeof ends>[0], source: AdminStatus['tls']['source']) => {
    const facts = tls({ source, certificates: [{ name, expires_at: at(-hourMs) }] })
    return problemsIn(facts).map(({ detail, remedy }) => `${detail}; ${remedy}`)[0] ?? ''
  }
  const own = texts('server', 'operator')
  expect(own).toContain('of the services (instances.a.example, inference.a.example), which is yours, ends soon: at ')
  expect(own).toContain(
    'into /etc/tls/own.pem (tls.certificate_file), and its key into /etc/tls/own.key (tls.key_file)',
  )
  expect(own).toContain('must have the names instances.a.example, inference.a.example, which the daemon does not check')
  expect(own).toContain('a pair that does not match or has expired is refused, and the old one stays')
  expect(texts('server', 'local')).toMatch(/of the services \(instances\.a\.example, .*\) ends soon.*tls\.refused/)
  // Instances trust an authority of the appliance alone.
  expect(texts('guest', 'operator')).toMatch(/instances reach ends soon.*tls\.refused/)
  for (const source of ['local', 'operator'] as const)
    expect(texts('authority', source)).toMatch(/ca\.pem\) ends soon.*replace it/)
})

test('goal: the names of an own certificate are those that clients of services that are on use', () => {
  const config = defaultConfig()
  const names = (change: { builds?: string; inference?: string; console?: string; placement?: 'vm' | 'host' }) =>
    servedNames({
      domain: 'a.example',
      listen: { ...config.listen, inference: '', builds: '', console: '', ...change },
      inference: { placement: change.placement ?? 'host' },
      console: { names: ['console.a.example'] },
      tls: { names: ['extra.a.example', 'instances.a.example'] },
    })
  expect(names({})).toEqual(['instances.a.example', 'extra.a.example'])
  expect(names({ inference: ':1', builds: ':2', console: ':3' })).toEqual([
    ...['instances.a.example', 'inference.a.example', 'builds.a.example', 'extra.a.example', 'console.a.example'],
  ])
  // The gateway's VM has a certificate of its own.
  expect(names({ inference: ':1', placement: 'vm' })).not.toContain('inference.a.example')
})

test('goal: a server that refuses its list has the remedy of its status; one that does not answer may be down', () => {
  const remedy = (refusal?: { status: number; keyFile: string }) => {
    const isDown = refusal === undefined
    const change = { problem: 'it answers', isDown, ...(isDown ? {} : { refusal }) }
    return problemsIn(gateway([{ ...up, ...change }])).find(({ name }) => name === 'upstream')?.remedy ?? ''
  }
  const keyFile = '/etc/strongroom/llm.key'
  for (const status of [401, 403]) {
    expect(remedy({ status, keyFile })).toStartWith(`it does not accept the key in ${keyFile}: put a valid one there`)
    expect(remedy({ status, keyFile })).toContain('systemctl restart strongroom')
  }
  expect(remedy({ status: 401, keyFile: '' })).toContain('none is configured: write one into a file')
  expect(remedy({ status: 404, keyFile })).toContain('correct inference.upstreams.url, which usually ends in /v1')
  expect(remedy({ status: 503, keyFile })).toStartWith('the log of that server has the reason')
  expect(remedy()).toContain('see that the server runs')
  // Ejected by the gateway: no requests are sent.
  for (const status of [404, 503]) {
    const problem = { ...up, problem: 'it answers', refusal: { status, keyFile } }
    const texts = [false, true].map(isDown => problemsIn(gateway([{ ...problem, isDown }])).at(-1)?.remedy ?? '')
    expect(texts.map(text => text.includes('may answer requests all the same'))).toEqual([true, false])
  }
})

test('goal: the remedies of ACME name what to change', () => {
  const remedy = (failure: { type: string | null; detail: string }) =>
    problemsIn(acme({ failure: { at: at(hourMs), ...failure } }))[0]?.remedy
  expect(remedy(noProof)).toContain('its port 80 must pass /.well-known/acme-challenge/ to 0.0.0.0:80')
  expect(remedy({ type: null, detail: 'tls.acme.http_listen: EADDRINUSE' })).toStartWith('free 0.0.0.0:80')
  expect(remedy({ type: 'urn:ietf:params:acme:error:rateLimited', detail: '' })).toContain('limits orders')
  expect(remedy({ type: 'urn:ietf:params:acme:error:externalAccountRequired', detail: '' })).toContain('eab_kid')
  expect(remedy({ type: null, detail: '' })).toContain('https://acme.example')
})
