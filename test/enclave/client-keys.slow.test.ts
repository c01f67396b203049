// Goal: a client that makes its own key has a secret that the host never has: nothing which the
// host stores, sends or logs lets it act as that client in the gateway's VM. With a key that the
// host minted, every place says so.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { encodePolicy } from '../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { decodeResponseReceipt, readCarriedReceipt } from '../../src/attest/receipt/response-read.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { offeredModels } from '../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../src/instances/http/auth.ts'
import { listenAdmin } from '../../src/operator/access/socket.ts'
import { createAdmin } from '../../src/operator/api.ts'
import { attestedFetch } from '../../src/verifier/fetch/node.ts'
import { NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { run as runOffline, runWith } from '../rigs/program.ts'

const testMs = 240_000
let upstream: TestUpstream
let clientDir: string
beforeAll(async () => {
  upstream = await startUpstream()
  clientDir = mkdtempSync(join(tmpdir(), 'srt-client-'))
})
afterAll(async () => {
  await upstream.stop()
  rmSync(clientDir, { recursive: true, force: true })
})

/** A host with its operator's interface and a gateway VM that serves. */
async function openHost() {
  const undo = new AsyncDisposableStack()
  const bench = undo.use(await EnclaveBench.start({ upstreams: [{ url: upstream.url }] }))
  const { vmId, session } = await bench.serve()
  const logged: string[] = []
  const missing = () => {
    throw new Error('this test calls nothing of this kind')
  }
  const admin = createAdmin({
    ...NO_ADMINISTRATORS,
    store: bench.store,
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'debug', sink: line => logged.push(line), nowMs: systemClock.nowMs }),
    mintKey,
    mintGatewayKey,
    offeredModels: offeredModels([]),
    gateway: {
      view: () => ({ problem: null, gatewayVms: [] }),
      replace: () => false,
      pushControl: () => session.pushControl(),
      session: () => null,
    },
    cancelBuild: null,
    deleteInstance: missing,
    applyEgressLimits: missing,
    vm: missing,
    status: missing,
    clockGuard: createClockGuard(systemClock),
    leaks: missing,
    collectors: [],
    consoleDir: missing,
  })
  const server = await listenAdmin(join(bench.dir, 'admin.sock'), admin)
  undo.defer(() => server.stop())
  const strongroom = (...argv: string[]) => runWith({ STRONGROOM_STATE_DIR: bench.dir }, argv)
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`http://strongroom${path}`, { ...init, unix: join(bench.dir, 'admin.sock') } as RequestInit)
  /**
   * All that root of the host can read: files, the signed key set, logs, and what the interface
   * shows.
   */
  const everything = async (): Promise<Buffer[]> => [
    ...readdirSync(bench.dir, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => readFileSync(join(entry.parentPath, entry.name))),
    Buffer.from(bench.control.current().bytes),
    Buffer.from([...logged, ...bench.log, bench.output(vmId)].join('\n')),
    ...(await Promise.all(
      ['/organizations/acme/gateway-keys', '/organizations/acme/keys', '/events'].map(async path =>
        Buffer.from(await (await ask(path)).arrayBuffer()),
      ),
    )),
  ]
  return {
    ...{ bench, vmId, session, strongroom, ask, everything, logged },
    [Symbol.asyncDispose]: () => undo.disposeAsync(),
  }
}

type Host = Awaited<ReturnType<typeof openHost>>

function send({ bench, vmId }: Host, authorization: string, path: string, body?: unknown): Promise<Response> {
  return fetch(bench.url(vmId) + path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { authorization, 'content-type': 'application/json', 'x-strongroom-receipt': '1' },
    tls: { ca: bench.caPem },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  } as RequestInit)
}

const question = { model: 'm', messages: [{ role: 'user', content: 'Hello' }] }

/** The word of the receipt and of GET /v1/usage for a key. */
async function makersOf(host: Host, key: string) {
  const answer = await send(host, `Bearer ${key}`, '/v1/chat/completions', question)
  expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)])
  const { receipt } = readCarriedReceipt(answer.headers.get('x-strongroom-receipt') ?? '')
  const usage = await send(host, `Bearer ${key}`, '/v1/usage')
  return [decodeResponseReceipt(receipt).claim.keyMadeBy, ((await usage.json()) as Record<string, unknown>).key_made_by]
}

test(
  'goal: the host that registered a client’s own key has no byte of its secret, and nothing that it has lets it in',
  async () => {
    await using host = await openHost()
    const keyFile = join(clientDir, 'client.key')
    const made = await runOffline('gateway', 'key', 'new', '--key-file', keyFile)
    expect([made.code, made.stdout]).toEqual([
      0,
      expect.stringMatching(/^gw_[a-z0-9]{8}_sha256_[0-9a-f]{64}\n$/) as unknown as string,
    ])
    const line = made.stdout.trim()
    const key = readFileSync(keyFile, 'utf8').trim()
    const [, prefix = '', secret = ''] = key.split('_')
    expect([key.length, secret.length, statSync(keyFile).mode & 0o777]).toEqual([44, 32, 0o600])

    expect((await send(host, `Bearer ${key}`, '/v1/usage')).status).toBe(401)
    const added = await host.strongroom('gateway', 'key', 'add', 'acme', line)
    expect([added.code, added.stdout]).toEqual([
      0,
      expect.stringMatching(/^made by: +its client$/m) as unknown as string,
    ])
    expect(await makersOf(host, key)).toEqual(['client', 'client'])

    const all = await host.everything()
    expect(all.some(bytes => bytes.includes(prefix))).toBe(true)
    expect(all.filter(bytes => bytes.includes(secret))).toEqual([])
    const digest = line.split('_')[3] ?? ''
    for (const guess of [line, `gw_${prefix}_${digest}`, `gw_${prefix}_${digest.slice(0, 32)}`]) {
      expect([guess, (await send(host, `Bearer ${guess}`, '/v1/usage')).status]).toEqual([guess, 401])
    }
    // The most that is left to the host: another digest under that prefix. The client is then
    // refused, and sees it.
    const own = mintGatewayKey(systemRandom)
    const snapshot = JSON.parse(Buffer.from(host.bench.control.current().bytes).toString())
    const forged = host.bench.signedSnapshot({
      ...snapshot,
      revision: snapshot.revision + 60_000,
      keys: snapshot.keys.map((item: { prefix: string }) =>
        item.prefix === prefix ? { ...item, secretSha256: Buffer.from(own.secretSha256).toString('base64url') } : item,
      ),
    })
    await host.session.stop()
    await host.bench.engine.control(host.vmId, forged, 30_000)
    const theirs = `gw_${prefix}_${own.key.split('_')[2]}`
    await until('the forged set is in force', 60_000, async () => {
      return (await send(host, `Bearer ${theirs}`, '/v1/usage')).status === 200
    })
    expect((await send(host, `Bearer ${key}`, '/v1/usage')).status).toBe(401)
  },
  testMs,
)

test(
  'goal: a minted key is marked in the list, the record, GET /v1/usage, the receipt and by attestedFetch; a client’s own is not',
  async () => {
    await using host = await openHost()
    const minted = (await host.strongroom('gateway', 'key', 'create', 'acme')).stdout.trim()
    const { key: own = '', registration = '' } = JSON.parse(
      (await runOffline('gateway', 'key', 'new', '--json')).stdout,
    )
    expect((await host.strongroom('gateway', 'key', 'add', 'acme', registration, '--concurrency', '3')).code).toBe(0)
    await until(
      'both keys are in force',
      60_000,
      async () => (await send(host, `Bearer ${own}`, '/v1/usage')).status === 200,
    )
    expect([await makersOf(host, minted), await makersOf(host, own)]).toEqual([
      ['host', 'host'],
      ['client', 'client'],
    ])

    const listed = await host.strongroom('gateway', 'key', 'list', 'acme', '--json')
    const makers = JSON.parse(listed.stdout).keys.map((item: Record<string, unknown>) => [
      item.prefix,
      item.made_by,
      item.concurrency_max,
    ])
    expect(new Set(makers)).toEqual(
      new Set([
        [minted.split('_')[1], 'host', null],
        [own.split('_')[1], 'client', 3],
      ]),
    )
    expect((await host.strongroom('gateway', 'key', 'list', 'acme')).stdout).toContain('minted by the host')

    const { bench, vmId } = host
    const { measurement } = JSON.parse(bench.engine.launch(vmId).document)
    const policy = {
      ...encodePolicy({ ...strictPolicy(), idKeyDigest: bench.host.operatorKey }),
      measurements: [measurement],
    }
    const trust = { simulatedRoot: bench.host.rootPem, ca: bench.caPem, outside: ['far'] }
    const pinned = attestedFetch({ url: bench.url(vmId), policy, ...trust })
    expect([await pinned.keyMadeBy(minted), await pinned.keyMadeBy(own)]).toEqual(['host', 'client'])
    const stranger = `gw_aaaaaaaa_${'a'.repeat(32)}`
    expect(await pinned.keyMadeBy(stranger).catch(error => [error.name, error.status])).toEqual(['KeyMakerError', 401])
    pinned.close()
  },
  testMs,
)

test(
  'goal: a whole key in the place of a registration line is refused, and neither recorded nor logged',
  async () => {
    await using host = await openHost()
    const key = mintGatewayKey(systemRandom).key
    const secret = key.split('_')[2] ?? ''
    const pasted = await host.strongroom('gateway', 'key', 'add', 'acme', key)
    expect([pasted.code, pasted.stdout]).toEqual([2, ''])
    expect(pasted.stderr).toContain('this is a whole key, not its registration line')
    expect(pasted.stderr).toContain('do not use it: make another key with `strongroom gateway key new`')
    expect(pasted.stderr).not.toContain(secret)
    const terms = { requests_per_minute: null, tokens_per_minute: null, concurrency_max: null, expires_at: null }
    const posted = await host.ask('/organizations/acme/gateway-keys/add', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...terms, registration: key }),
    })
    const { error } = (await posted.json()) as { error: Record<string, string> }
    expect([posted.status, error.code, error.param]).toEqual([400, 'invalid_request', 'registration'])
    expect((await host.everything()).filter(bytes => bytes.includes(secret))).toEqual([])
    // A control: the search finds what is there.
    writeFileSync(join(host.bench.dir, 'planted'), key)
    expect((await host.everything()).filter(bytes => bytes.includes(secret))).toHaveLength(1)
  },
  testMs,
)
