// A host floods the channel of its gateway VM, with the real enclave: clients are served much as without a flood.

import { expect, test } from 'bun:test'
import { writeFileSync } from 'node:fs'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { EnclaveMachine } from '../../scripts/rigs/enclave/machine.ts'
import { startUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'

const testMs = 120_000

/** Requests one after the other: their average, without the slowest, which the machine may have held up. */
async function chatMs(ask: () => Promise<Response>): Promise<number> {
  const tookMs: number[] = []
  const endMs = performance.now() + 1_000
  while (tookMs.length < 20 || performance.now() < endMs) {
    const beganMs = performance.now()
    const answer = await ask()
    expect([answer.status, (await answer.text()).length > 0]).toEqual([200, true])
    tookMs.push(performance.now() - beganMs)
  }
  const most = tookMs.toSorted((a, b) => a - b).slice(0, Math.floor(0.95 * tookMs.length))
  return most.reduce((sum, ms) => sum + ms, 0) / most.length
}
const memoryMib = async (pid: number) =>
  Number(/^VmRSS:\s+(\d+)/m.exec(await Bun.file(`/proc/${pid}/status`).text())?.[1]) / 1024

const readBytes = async (pid: number) => Number(/^rchar: (\d+)/m.exec(await Bun.file(`/proc/${pid}/io`).text())?.[1])

/**
 * Sends these bytes repeatedly, as fast as they are read, from another process, so that the test has time for
 * requests.
 */
function pour(bench: EnclaveBench, machine: EnclaveMachine, bytes: Uint8Array): AsyncDisposable {
  const file = `${bench.dir}/flood`
  writeFileSync(file, bytes)
  const child = Bun.spawn(['sh', '-c', `while cat ${file}; do :; done > ${machine.toGuestPath}`])
  return {
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

const FLOODS: [what: string, line: string | Uint8Array][] = [
  ['lines that are nearly requests', '{"id":"a","op":"next","known":[],"booked":0,"waitMs":-1}\n'],
  ['lines that nest', `${'['.repeat(65_535)}\n`],
  ['requests with many fields', `{"id":"a"${Array.from({ length: 7_000 }, (_, at) => `,"k${at}":0`).join('')}}\n`],
  ['a line without an end', 'x'.repeat(65_536)],
  ['bytes that are no text', new Uint8Array(1_024).fill(0xff).with(1_023, 0x0a)],
]
test(
  'goal: whatever is poured into the channel, clients are served much as without it, memory stays, and the next host is heard',
  async () => {
    const upstream = await startUpstream()
    await using undo = new AsyncDisposableStack()
    undo.defer(upstream.stop)
    const bench = undo.use(await EnclaveBench.start({ upstreams: [{ url: upstream.url }] }))
    const key = bench.addKey()
    const { vmId, session } = await bench.serve()
    await session.stop()
    const machine = bench.machine(vmId)
    if (!(machine instanceof EnclaveMachine)) throw new Error('an enclave of its own')
    const { pid } = machine
    const ask = () =>
      fetch(`${bench.url(vmId)}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }),
        tls: { ca: bench.caPem },
      })
    await chatMs(ask)
    const before = await memoryMib(pid)
    const judge = async (what: string, line: string | Uint8Array) => {
      const calmMs = await chatMs(ask)
      const item = typeof line === 'string' ? Buffer.from(line) : line
      const readBefore = await readBytes(pid)
      await using _flood = pour(bench, machine, Buffer.concat(Array(Math.ceil(65_536 / item.length)).fill(item)))
      const floodedMs = await chatMs(ask)
      const read = (await readBytes(pid)) - readBefore
      process.stderr.write(
        `${what}: ${floodedMs.toFixed(1)} ms a request, ${calmMs.toFixed(1)} without it, ${read} bytes read\n`,
      )
      expect(floodedMs, what).toBeLessThan(5 * calmMs)
    }
    for (const [what, line] of FLOODS) {
      await judge(what, line)
      // Heard once all that was said before is done with.
      await bench.connect(vmId)
    }
    const next = bench.newSession(vmId)
    next.start()
    await until('its usage is booked', 60_000, () => next.status?.usageWaiting === 0 && bench.rows.length > 0)
    await next.stop()
    // Most of these lines fit into what has been read already.
    await judge('the shortest lines', 'x\n')
    expect((await memoryMib(pid)) - before).toBeLessThan(128)
  },
  testMs,
)
