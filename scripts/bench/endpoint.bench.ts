// Time that an instance's endpoint adds to the first chunk of a stream: requests through it, verified and encrypted,
// in turns with requests straight to the same gateway. Native, over open connections; the first request, which
// verifies, is a figure of its own.

import { join } from 'node:path'
import { toHex } from '../../src/base/bytes.ts'
import type { AttestedGateway } from '../../src/contract/vm/inference-gateway.ts'
import { EnclaveBench } from '../rigs/enclave/enclave.ts'
import { launchMeasurement } from '../rigs/enclave/workload.ts'
import { startUpstream } from '../rigs/gateway/upstream-server.ts'
import { startEndpoint } from '../rigs/instances/instance-endpoint.ts'
import { until } from '../rigs/until.ts'
import type { Figure, Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const turns = 400
const warmUpTurns = 40
/** Characters of a prompt, as of an agent with some files in its context. */
const promptChars = 16_384
const addedMsMax = 3

export async function run({ note, repoRoot }: BenchContext): Promise<Figures> {
  const upstream = await startUpstream()
  try {
    await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
    const key = bench.addKey()
    const { vmId } = await bench.serve()
    const gateway: AttestedGateway = {
      kind: 'attested',
      measurements: [launchMeasurement],
      operatorKey: toHex(bench.host.operatorKey),
      outside: bench.workload.upstreams.map(({ name }) => name),
      simulatedRoot: bench.host.rootPem,
    }
    const baseUrl = `${bench.url(vmId)}/v1`
    // The documents of this one; the process has a port of its own.
    await using documents = await startEndpoint({ baseUrl, gateway, key })
    const port = freePort()
    const program = join(repoRoot, 'scripts/rigs/gateway/endpoint-program.ts')
    const root = documents.paths.runDir.replace(/\/run\/strongroom$/, '')
    const child = Bun.spawn([process.execPath, program, root, String(port)], { stdin: 'ignore', stderr: 'inherit' })
    try {
      const through = `http://127.0.0.1:${port}/v1`
      await until('the endpoint listens', 10_000, () => fetch(through).then(Boolean, () => false))
      const ask = (url: string) => firstChunkMs(url, { key, ca: bench.caPem })
      const firstMs = await ask(through)
      note(`first request, which verifies the gateway: ${firstMs.toFixed(1)} ms`)
      const [direct, endpoint]: [number[], number[]] = [[], []]
      let beforeMs = 0
      for (let turn = -warmUpTurns; turn < turns; turn += 1) {
        const [value, other] = [await ask(baseUrl), await ask(through)]
        if (turn === 0) beforeMs = await cpuMs(child.pid)
        if (turn < 0) continue
        direct.push(value)
        endpoint.push(other)
      }
      const resident = Number(/VmRSS:\s+(\d+)/.exec(await Bun.file(`/proc/${child.pid}/status`).text())?.[1])
      const added = (share: number) => quantile(endpoint, share) - quantile(direct, share)
      return {
        directP50Ms: ms(quantile(direct, 0.5)),
        endpointP50Ms: ms(quantile(endpoint, 0.5)),
        addedP10Ms: ms(added(0.1)),
        addedP50Ms: ms(added(0.5), addedMsMax),
        addedP95Ms: ms(added(0.95)),
        endpointCpuMs: ms(((await cpuMs(child.pid)) - beforeMs) / turns),
        firstMs: ms(firstMs),
        residentMib: { value: Math.round(resident / 102.4) / 10, unit: 'MiB', aim: null },
      }
    } finally {
      child.kill()
      await child.exited
    }
  } finally {
    await upstream.stop()
  }
}

const tickMs = 10

/** proc_pid_stat(5): utime and stime are the fields 14 and 15. */
async function cpuMs(pid: number): Promise<number> {
  const text = await Bun.file(`/proc/${pid}/stat`).text()
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return tickMs * (Number(fields[11]) + Number(fields[12]))
}

function ms(value: number, atMost: number | null = null): Figure {
  return { value: Math.round(value * 100) / 100, unit: 'ms', aim: atMost === null ? null : { atMost } }
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(share * (sorted.length - 1))] ?? Number.NaN
}

const body = JSON.stringify({
  model: 'm',
  stream: true,
  messages: [{ role: 'user', content: 'x'.repeat(promptChars) }],
})

async function firstChunkMs(url: string, { key, ca }: { readonly key: string; readonly ca: string }): Promise<number> {
  const startedMs = performance.now()
  const response = await fetch(`${url}/chat/completions`, {
    method: 'POST',
    body,
    tls: { ca },
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
  })
  const reader = response.body?.getReader()
  const { value } = (await reader?.read()) ?? {}
  const tookMs = performance.now() - startedMs
  if (response.status !== 200 || value === undefined) throw new Error(`${url}: status ${response.status}`)
  for (let read = await reader?.read(); read?.done === false; read = await reader?.read());
  return tookMs
}

function freePort(): number {
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  listener.stop(true)
  return listener.port
}
