// Goal: a policy is in force before an order is answered: first the filter, then the state that the broker's group
// reads, then the names; what fails leaves more refused and never less.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { createReach } from '../../../src/guest/reach/reach.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-reach-'))
afterAll(() => rmSync(dir, { recursive: true }))
const { uid, gid } = userInfo()
const claim = {
  name: 'abcd1234',
  hostname: 'abcd1234.acme.example',
  inference: { baseUrl: 'https://gw.example/v1', address: null },
}
const policy = {
  default: 'refuse',
  allow: [
    { host: 'github.com', port: 443 },
    { host: 'github.com', port: 22 },
  ],
} as const
const secret: Secret = {
  name: 'T',
  host: 'api.example',
  port: 443,
  header: 'Authorization',
  format: 'Bearer {}',
  value: 'x'.repeat(20),
}

let paths = guestPaths('')
let done: string[] = []
let isRunning = false
let fails = false
let serves = true
beforeEach(() => {
  const root = mkdtempSync(join(dir, 'r-'))
  paths = guestPaths(root)
  mkdirSync(join(paths.runDir, 'broker'), { recursive: true })
  mkdirSync(paths.etc)
  const network = { address: '192.0.2.2', gateway: '192.0.2.1', resolvers: ['192.0.2.53'], mtuBytes: 1500 }
  writeFileSync(paths.networkRecord, JSON.stringify(network))
  done = []
  isRunning = false
  fails = false
  serves = true
})

const served = () => {
  if (!serves) return
  writeFileSync(paths.brokerInForce, createHash('sha256').update(readFileSync(paths.brokerState)).digest('hex'))
}
function reachOf(clock = createManualClock(), brokerGid = gid) {
  return createReach({
    ...{ paths, system: { uid, gid }, brokerGid, reachProgram: '/reach' },
    clock: { monotonicMs: clock.monotonicMs, sleep: async ms => clock.advance(ms) },
    run: async argv => {
      done.push(argv.join(' '))
      if (fails) throw new Error('nft: syntax error')
      return { stdout: '', stderr: '' }
    },
    broker: {
      start: async () => {
        done.push('start')
        isRunning = true
        served()
      },
      stop: async () => void done.push('stop'),
      signal: name => {
        if (isRunning) done.push(name)
        if (isRunning) served()
        return isRunning
      },
    },
  })
}
const text = (name: string) => readFileSync(`${paths.etc}/${name}`, 'utf8')
const state = () => JSON.parse(readFileSync(paths.brokerState, 'utf8'))

test('goal: without a policy nothing is restricted, stated or started', async () => {
  const reach = reachOf()
  await reach.restore()
  expect([reach.state(), reach.policyText(), done]).toEqual([null, null, []])
})

test('goal: the first policy sets the filter, the state, the names, and starts the broker', async () => {
  const reach = reachOf()
  expect(await reach.change({ policy }, claim, 1_000)).toEqual({ ok: true })
  expect(done).toEqual(['/reach refuse 443 22', 'start'])
  expect(state()).toEqual({
    ...{
      version: 1,
      policy,
      slots: [443, 22],
      resolvers: ['192.0.2.53'],
      v4: true,
      v6: false,
      gateway: 'gw.example',
      secrets: [],
    },
  })
  expect(statSync(paths.brokerState).mode & 0o777).toBe(0o640)
  expect([text('resolv.conf'), text('hosts')]).toEqual([
    'nameserver 198.18.0.1\n',
    '127.0.0.1 localhost\n127.0.1.1 abcd1234.acme.example abcd1234\n::1 localhost\n',
  ])
  expect(readFileSync(`${paths.sharedEtc}/resolv.conf`, 'utf8')).toBe('nameserver 198.18.0.1\n')
  expect(reach.policyText()).toBe(
    '{"allow":[{"host":"github.com","port":22},{"host":"github.com","port":443}],"default":"refuse"}',
  )
  // A restarted agent finds it.
  done = []
  await reachOf().restore()
  expect(done).toEqual(['/reach refuse 443 22', 'SIGHUP', 'start'])
})

test('goal: a later policy keeps the slots of ports and the secrets, and signals the broker', async () => {
  const reach = reachOf()
  await reach.change({ policy, secrets: [secret] }, claim, 1_000)
  done = []
  await reach.change({ policy: { default: 'refuse', allow: [{ host: 'a.example', port: 8080 }] } }, claim, 1_000)
  expect(done).toEqual(['/reach refuse 443 8080', 'SIGHUP'])
  expect(state().secrets).toEqual([secret])
})

test('goal: an open policy gives the names back and stops the broker; a secret keeps it for its host', async () => {
  const reach = reachOf()
  await reach.change({ policy }, claim, 1_000)
  done = []
  await reach.change({ policy: { default: 'allow', allow: [] } }, claim, 1_000)
  expect([done, text('resolv.conf'), reach.policyText()]).toEqual([
    ['/reach allow 0 0', 'stop'],
    'nameserver 192.0.2.53\n',
    null,
  ])
  await reach.change({ secrets: [secret] }, claim, 1_000)
  expect(text('hosts')).toMatch(/^198\.18\.\d+\.\d+ api\.example$/m)
  expect(text('resolv.conf')).toBe('nameserver 192.0.2.53\n')
  await reach.change({ secrets: [] }, claim, 1_000)
  expect(text('hosts')).not.toContain('api.example')
})

// Goal: a wrong policy names the field and the remedy, and changes nothing.
test.each([
  [null, 'egress: not a policy'],
  [{ default: 'deny', allow: [] }, 'egress: not a policy'],
  [{ default: 'refuse' }, 'egress: not a policy'],
  [{ default: 'refuse', allow: [{ host: 'github.com', port: 443, extra: 1 }] }, 'egress: not a policy'],
  [{ default: 'refuse', allow: [{ host: '192.0.2.1', port: 443 }] }, '192.0.2.1 is not a DNS name'],
  [
    { default: 'refuse', allow: Array.from({ length: 33 }, (_, at) => ({ host: 'a.example', port: at + 1 })) },
    '32 different',
  ],
])('goal: %j is refused, with the field and the remedy, and changes nothing', async (wrong, reason) => {
  const refused = await reachOf().change({ policy: wrong ?? 7 }, claim, 1_000)
  expect(refused).toMatchObject({ ok: false, message: expect.stringContaining(reason) })
  expect([done, existsSync(paths.brokerState)]).toEqual([[], false])
})

test('goal: what would make the statement too long is refused before it changes anything', async () => {
  const reach = reachOf()
  const long = (at: number) => `${'a'.repeat(60)}.${'b'.repeat(60)}.${'c'.repeat(60)}.n${at}.example`
  const secrets = Array.from({ length: 32 }, (_, at) => ({
    ...{ ...secret, name: `S${at}`, host: long(at), path: `/${'p'.repeat(200)}` },
  }))
  const hosts = (count: number) => Array.from({ length: count }, (_, at) => ({ host: long(100 + at), port: 443 }))
  expect(await reach.change({ secrets }, claim, 1_000)).toEqual({ ok: true })
  const before = [state(), done]
  const tooLong = await reach.change({ policy: { default: 'refuse', allow: hosts(64) } }, claim, 1_000)
  expect(tooLong).toMatchObject({ ok: false, code: 'bad_request' })
  expect('message' in tooLong ? tooLong.message : '').toMatch(
    /^statement: destinations and secrets have \d+ bytes in it, at most 26624; name fewer destinations, or remove secrets$/,
  )
  expect([state(), done]).toEqual(before)
  // Fewer fit, and the largest policy alone does.
  expect(await reach.change({ policy: { default: 'refuse', allow: hosts(40) } }, claim, 1_000)).toEqual({ ok: true })
  expect(await reach.change({ secrets: [] }, claim, 1_000)).toEqual({ ok: true })
  expect(await reach.change({ policy: { default: 'refuse', allow: hosts(64) } }, claim, 1_000)).toEqual({ ok: true })
})

const narrow = { default: 'refuse', allow: [{ host: 'github.com', port: 443 }] } as const
const open = { default: 'allow', allow: [] } as const
// Goal: whichever step of a change fails, the VM states no more than its filter refuses and its broker serves.
test.each([
  ['the filter', 'tighter', narrow],
  ['the filter', 'open', open],
  ['the state', 'tighter', narrow],
  ['the state', 'open', open],
  ['the names', 'tighter', narrow],
  ['the names', 'open', open],
] as const)('goal: %s fails in a change to a policy that is %s', async (step, _, wanted) => {
  await reachOf().change({ policy }, claim, 1_000)
  done = []
  fails = step === 'the filter'
  // No group has this number, and nothing can be renamed over a directory that has files.
  const reach = reachOf(createManualClock(), step === 'the state' ? -7 : gid)
  if (step === 'the names') {
    rmSync(`${paths.etc}/hosts`)
    mkdirSync(`${paths.etc}/hosts/x`, { recursive: true })
  }
  await expect(reach.change({ policy: wanted }, claim, 1_000)).rejects.toThrow()
  const filter = fails ? '/reach refuse' : done.findLast(line => line.startsWith('/reach'))
  if (reach.policyText() !== null) expect(filter).toStartWith('/reach refuse')
  if (step === 'the state') expect([reach.state()?.policy, filter]).toEqual([policy as never, '/reach refuse 443 22'])
  // The broker serves what was written.
  if (step === 'the names' && wanted.default === 'refuse') expect(done).toContain('SIGHUP')
  fails = false
  rmSync(`${paths.etc}/hosts`, { recursive: true, force: true })
  expect(await reachOf().change({ policy: wanted }, claim, 1_000)).toEqual({ ok: true })
})

test('goal: an agent that follows one that died in a change enforces what the state has', async () => {
  await reachOf().change({ policy }, claim, 1_000)
  writeFileSync(paths.brokerState, JSON.stringify({ ...state(), policy: open }))
  done = []
  await reachOf().restore()
  expect(done).toEqual(['/reach allow 443 22'])
})

test('goal: what a claim left that was never completed is removed, and nothing else is touched', async () => {
  await reachOf().reset()
  expect(done).toEqual(['stop'])
  await reachOf().change({ policy }, claim, 1_000)
  done = []
  await reachOf().reset()
  expect([done, existsSync(paths.brokerState), text('resolv.conf')]).toEqual([
    ['stop', '/reach allow'],
    false,
    'nameserver 192.0.2.53\n',
  ])
})

test('goal: a broker that does not serve the policy in time is said', async () => {
  serves = false
  expect(await reachOf().change({ policy }, claim, 1_000)).toMatchObject({ ok: false, code: 'failed' })
  chmodSync(paths.brokerState, 0o640)
  // A claim does not wait: what the broker does not serve yet is refused.
  expect(await reachOf().change({ policy }, claim, 0)).toEqual({ ok: true })
})
