// One gateway VM serves at all times: real enclaves as processes, the supervisor over a real store, a recorded
// firewall.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { GatewayVmSupervisor } from '../../src/enclave-host/gateway-vm-supervisor.ts'
import { findGatewayVmLeaks } from '../../src/enclave-host/leaks.ts'
import { revokeGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { sumUsage } from '../../src/store/directory/usage/usage.query.ts'
import { listGatewayVms, moveGatewayVm } from '../../src/store/ledger/gateway-vm.query.ts'
import { vmById } from '../../src/store/ledger/vm.query.ts'
import { prefixOf } from '../rigs/gateway/keys.ts'

const testMs = 240_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

type KeeperOptions = {
  readonly patienceMs?: number
  readonly beforeServing?: (vmId: string) => void
  readonly gpus?: readonly string[]
  readonly isShutOut?: () => boolean
}

function keeperOf(bench: EnclaveBench, options: KeeperOptions = {}): GatewayVmSupervisor {
  const { patienceMs = 60_000, beforeServing = () => {}, gpus = [], isShutOut = () => false } = options
  const log = createLogger({ level: 'info', sink: line => void bench.log.push(line), nowMs: systemClock.nowMs })
  return new GatewayVmSupervisor({
    store: bench.store.ledger,
    hostId: bench.store.hostId,
    engine: bench.engine,
    wanted: () => {
      const workload = bench.workloadText
      const spec = { image: 'inference', vcpus: 1, memoryMib: 1024, network: 'gateway', workload, gpus } as const
      return { spec, shape: workload }
    },
    newSession: (vmId, onChange) => bench.newSession(vmId, { onChange }),
    addresses: bench.addresses,
    verify: vmId => bench.verify(vmId),
    beforeServing,
    patienceMs,
    startMs: 60_000,
    drainMs: 60_000,
    isShutOut,
    clock: systemClock,
    guard: createClockGuard(systemClock),
    random: systemRandom,
    log,
  })
}

const servingOf = (bench: EnclaveBench) => bench.servingRow()
const usageOf = (bench: EnclaveBench) =>
  sumUsage(bench.store.directory.db, { organizationId: 'o1', startMs: 0, endMs: Number.MAX_SAFE_INTEGER })

async function serving(bench: EnclaveBench, other: string | null = null): Promise<string> {
  await until('a gateway serves', 60_000, () => servingOf(bench) !== null && servingOf(bench) !== other)
  const vmId = servingOf(bench) ?? ''
  await until('clients are sent to it', 60_000, () => bench.routes.at(-1)?.serving === vmId)
  return vmId
}

/** A stream that has begun and whose upstream says nothing before `release`. Requests after it are answered as ever. */
async function heldStream(begin: () => Promise<Response>) {
  const { promise: held, resolve: release } = Promise.withResolvers<void>()
  const { behave } = upstream
  upstream.behave = async (response, seen, gone) => {
    await held
    await behave(response, seen, gone)
  }
  const stream = begin()
  await until('the stream has begun', 60_000, () => upstream.active() === 1)
  upstream.behave = behave
  return { stream, release }
}

function chat(bench: EnclaveBench, vmId: string, key: string, more: Record<string, unknown> = {}): Promise<Response> {
  return fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }], ...more }),
    tls: { ca: bench.caPem },
  })
}

test(
  'goal: an update is without a gap: the new VM is verified before it serves, the old one ends its streams and goes',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    let isFull = true
    const logged: string[] = []
    const beforeServing = (vmId: string) => {
      logged.push(vmId)
      expect(bench.routes.map(route => route.serving)).not.toContain(vmId)
      if (isFull) throw new Error('the transparency log cannot be written')
    }
    const keeper = keeperOf(bench, { beforeServing })
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    const full = 'the transparency log cannot be written'
    await until('a start is to be logged', 60_000, () => logged.length >= 2 && keeper.view().problem === full)
    expect(servingOf(bench)).toBeNull()
    isFull = false
    const first = await serving(bench)
    const held = await heldStream(() => chat(bench, first, key, { stream: true }))
    expect(keeper.replace()).toBe(true)
    const second = await serving(bench, first)
    expect((await chat(bench, second, key)).status).toBe(200)
    expect(listGatewayVms(bench.store.ledger.db, bench.store.hostId).map(row => row.state)).toEqual([
      'draining',
      'serving',
    ])
    held.release()
    expect(await (await held.stream).text()).toEndWith('data: [DONE]\n\n')
    await until(
      'the old one is gone',
      60_000,
      () => listGatewayVms(bench.store.ledger.db, bench.store.hostId).length === 1,
    )
    await until('the rows of both are booked', 60_000, () => usageOf(bench).requests === 2)
    const routes = bench.routes.map(route => route.serving)
    expect(routes.filter((vm, at) => vm !== routes[at - 1])).toEqual([null, first, second])
    // Route first, then record `serving`: a client that reads the status can connect.
    expect(bench.servingAtRoutes[routes.indexOf(first)]).toBe(null)
    expect(bench.servingAtRoutes[routes.indexOf(second)]).toBe(first)
  },
  testMs,
)

test(
  'goal: no client is sent to the gateway of a host that its fleet has removed, until the host is a member again',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    let isShutOut = true
    const keeper = keeperOf(bench, { isShutOut: () => isShutOut })
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    await until('a gateway is ready', 60_000, () => servingOf(bench) !== null)
    expect(bench.routes.map(route => route.serving)).not.toContain(servingOf(bench))
    isShutOut = false
    const vmId = await serving(bench)
    isShutOut = true
    await until('no client is sent to it', 60_000, () => bench.routes.at(-1)?.serving === null)
    expect(servingOf(bench)).toBe(vmId)
  },
  testMs,
)

test(
  'goal: a GPU is in one VM at a time: the VM that has it drains and ends before its successor starts',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const keeper = keeperOf(bench, { gpus: ['0000:41:00.0'] })
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    const first = await serving(bench)
    const held = await heldStream(() => chat(bench, first, key, { stream: true }))
    expect(keeper.replace()).toBe(true)
    const states = () => listGatewayVms(bench.store.ledger.db, bench.store.hostId).map(row => row.state)
    await until('the old one drains, alone', 60_000, () => states().join() === 'draining')
    await until('nobody is led to it', 60_000, () => bench.routes.at(-1)?.serving === null)
    held.release()
    expect(await (await held.stream).text()).toEndWith('data: [DONE]\n\n')
    const second = await serving(bench, first)
    expect(bench.routes.map(route => route.serving).filter((vm, at, all) => vm !== all[at - 1])).toEqual([
      ...[null, first, null, second],
    ])
    expect(vmById(bench.store.ledger.db, first)?.desired).toBe('gone')
  },
  testMs,
)

test(
  'goal: a VM that dies is replaced, its receipts do not vouch for the next, and no row is lost or double',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const keeper = keeperOf(bench)
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    const first = await serving(bench)
    const keyOfFirst = (await bench.verify(first)).receiptKey
    for (let count = 0; count < 20; count += 1) await (await chat(bench, first, key)).text()
    await until('the rows are booked', 60_000, () => usageOf(bench).requests === 20)
    bench.kill(first)
    const second = await serving(bench, first)
    expect((await bench.verify(second)).receiptKey).not.toBe(keyOfFirst)
    await (await chat(bench, second, key)).text()
    await until('the next row is booked', 60_000, () => usageOf(bench).requests === 21)
  },
  testMs,
)

test(
  'goal: a keeper that is killed anywhere goes on with the VM that serves, and starts no other',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const first = keeperOf(bench)
    first.start()
    const vmId = await serving(bench)
    await first.stop()
    bench.disconnect(vmId)
    await (await chat(bench, vmId, key)).text()
    await bench.connect(vmId)
    const routed = bench.routes.length
    const second = keeperOf(bench)
    await using _keeper = { [Symbol.asyncDispose]: () => second.stop() }
    // Only its row is known: with a host that restarted, the VM died.
    expect(second.view().gatewayVms).toMatchObject([
      { vmId, state: 'serving', problem: expect.stringContaining('has not reported') },
    ])
    second.start()
    await until('it is heard from', 60_000, () => second.view().gatewayVms[0]?.problem === null)
    await until('the firewall hears of it again', 60_000, () => bench.routes.length > routed)
    await until('the row is booked', 60_000, () => usageOf(bench).requests === 1)
    expect(listGatewayVms(bench.store.ledger.db, bench.store.hostId).map(row => row.vmId)).toEqual([vmId])
  },
  testMs,
)

test(
  'goal: a key is good, and a revoked one is not, as soon as the VM was told',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const keeper = keeperOf(bench)
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    const vmId = await serving(bench)
    const key = bench.addKey()
    await keeper.pushControl()
    expect((await chat(bench, vmId, key)).status).toBe(200)
    revokeGatewayKey(bench.store.directory.db, { prefix: prefixOf(key), nowMs: Date.now() })
    await keeper.pushControl()
    expect((await chat(bench, vmId, key)).status).toBe(401)
  },
  testMs,
)

test(
  'goal: a VM whose row had ended when its keeper was killed is dismissed by the next',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const { vmId } = await bench.serve()
    const { db } = bench.store.ledger
    moveGatewayVm(db, { vmId, from: ['starting'], to: 'gone', reason: 'it was replaced', nowMs: 5 })
    expect(findGatewayVmLeaks(db, bench.store.hostId)).toMatchObject([
      { kind: 'gateway', name: vmId, detail: 'unknown' },
    ])
    const keeper = keeperOf(bench)
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    await serving(bench, vmId)
    await until('the other is dismissed', 60_000, () => findGatewayVmLeaks(db, bench.store.hostId).length === 0)
    expect(vmById(db, vmId)?.desired).toBe('gone')
  },
  testMs,
)

test(
  'goal: another configuration is another VM',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const keeper = keeperOf(bench)
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    const first = await serving(bench)
    bench.workload = { ...bench.workload, gateway: { ...bench.workload.gateway, ownedBy: 'another' } }
    const second = await serving(bench, first)
    expect(await (await fetch(`${bench.url(second)}/workload.json`, { tls: { ca: bench.caPem } })).text()).toBe(
      bench.workloadText,
    )
  },
  testMs,
)

test(
  'goal: a worker that does not run stops itself alone: other models are served, without attestation',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const { worker } = bench.workload
    if (worker === null) throw new Error('the rig has a worker')
    // Another file than the disk holds, as one changed byte would be.
    bench.workload = { ...bench.workload, worker: { ...worker, disk: { ...worker.disk, fileSha256: '00'.repeat(32) } } }
    const key = bench.addKey()
    const keeper = keeperOf(bench, { patienceMs: 500 })
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    keeper.start()
    const vmId = await serving(bench)
    expect((await chat(bench, vmId, key)).status).toBe(200)
    const ofWorker = async () => (await chat(bench, vmId, key, { model: 'w' })).status
    await until('its own model is refused', 60_000, async () => (await ofWorker()) === 502)
    await until('its host reads why', 60_000, () => keeper.view().gatewayVms[0]?.problem?.includes('the worker:'))
  },
  testMs,
)

test(
  'goal: a VM says what it keeps of a budget while it is the only one; beside another one nothing is taken back',
  async () => {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const keeper = keeperOf(bench)
    await using _keeper = { [Symbol.asyncDispose]: () => keeper.stop() }
    const scope = { organizationId: 'o2', keyPrefix: '', month: '2026-11' }
    expect(await keeper.lowerBudget(scope)).toBeNull()
    keeper.start()
    const first = await serving(bench)
    expect(await keeper.lowerBudget(scope)).toEqual({ nanoUsd: 0, tokens: 0 })
    const held = await heldStream(() => chat(bench, first, key, { stream: true }))
    expect(keeper.replace()).toBe(true)
    await serving(bench, first)
    expect(await keeper.lowerBudget(scope)).toBeNull()
    held.release()
    await (await held.stream).text()
    await until('the old one is gone', 60_000, () => {
      return listGatewayVms(bench.store.ledger.db, bench.store.hostId).length === 1
    })
    expect(await keeper.lowerBudget(scope)).toEqual({ nanoUsd: 0, tokens: 0 })
  },
  testMs,
)
