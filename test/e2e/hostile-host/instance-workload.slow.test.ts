// A host that has the operator key launches the measured gateway with another workload.json than an instance was
// claimed for. Measurement and operator key are right, so only HOST_DATA tells the two apart. The instance's endpoint
// runs as in its VM, before real enclaves as processes.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { canary, startEndpoint } from '../../../scripts/rigs/instances/instance-endpoint.ts'
import { toHex } from '../../../src/base/bytes.ts'
import type { AttestedGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { keptResponsesDefault } from '../../../src/contract/vm/kept-defaults.ts'

const testMs = 120_000
let bench: EnclaveBench
let firstUrl: string
let first: string
let honest: typeof bench.workload
beforeAll(async () => {
  bench = await EnclaveBench.start()
  honest = bench.workload
  first = digestOf(bench.workloadText)
  firstUrl = bench.url((await bench.serve()).vmId)
}, testMs)
afterAll(() => bench[Symbol.asyncDispose]())

const digestOf = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')

function claimed(changes: Partial<AttestedGateway> = {}): AttestedGateway {
  return {
    kind: 'attested',
    measurements: [launchMeasurement],
    operatorKey: toHex(bench.host.operatorKey),
    workloads: [first],
    outside: [],
    simulatedRoot: bench.host.rootPem,
    ...changes,
  }
}

/** Launches the next VM with another workload.json, under the same operator key. */
async function relaunch(gateway: Partial<typeof bench.workload.gateway>): Promise<{ url: string; digest: string }> {
  bench.workload = { ...honest, gateway: { ...honest.gateway, ...gateway } }
  const { vmId } = await bench.serve()
  return { url: bench.url(vmId), digest: digestOf(bench.workloadText) }
}

/** Sends a prompt through the endpoint of an instance. The gateway itself answers 401: it has no such key. */
async function promptOf(url: string, gateway: AttestedGateway, own?: AttestedGateway) {
  await using endpoint = await startEndpoint({ baseUrl: `${url}/v1`, gateway })
  if (own !== undefined) expect(await endpoint.command(['set'], JSON.stringify(own))).toMatchObject({ exitCode: 0 })
  const { status, text } = await endpoint.prompt()
  expect(text).not.toContain(canary)
  return { isSent: !text.includes('Your prompt was not sent'), status, text }
}

test(
  'goal: an instance sends its prompts to the workload.json of its claim, and to no other of the same operator',
  async () => {
    expect((await promptOf(firstUrl, claimed())).isSent).toBe(true)
    const next = await relaunch({ queueMax: 7 })
    const refused = await promptOf(next.url, claimed())
    expect([refused.isSent, refused.status]).toEqual([false, 424])
    expect(refused.text).toContain(`HOST_DATA is ${next.digest}, which is none of those that you expect`)
    // The command that the refusal names is all that the owner types.
    expect(refused.text).toContain('strongroom-gateway accept SHA256 NAME=URL')
    await using endpoint = await startEndpoint({ baseUrl: `${next.url}/v1`, gateway: claimed() })
    expect(await endpoint.command(['accept', next.digest])).toMatchObject({ exitCode: 0 })
    expect((await endpoint.prompt()).text).not.toContain('Your prompt was not sent')
    // Both, while the operator updates; or what its owner accepts from now on, with and without the operator key.
    expect((await promptOf(next.url, claimed({ workloads: [first, next.digest] }))).isSent).toBe(true)
    for (const operatorKey of [toHex(bench.host.operatorKey), null]) {
      const own = claimed({ workloads: [next.digest], operatorKey })
      expect((await promptOf(next.url, claimed(), own)).isSent).toBe(true)
      expect((await promptOf(firstUrl, claimed(), own)).isSent).toBe(false)
    }
  },
  testMs,
)

test(
  'goal: a setting that shows more to the host, or keeps content, gets no prompt unless it is allowed by name',
  async () => {
    for (const [gateway, name] of [
      [{ usageLabels: true }, 'usage-labels'],
      [{ padStreams: 'off' }, 'no-padding'],
      [{ keptResponses: keptResponsesDefault }, 'kept-responses'],
      [{ traces: { sampleRatio: 1, followParent: true, forwardParent: false } }, 'traces'],
    ] as const) {
      const { url } = await relaunch(gateway)
      const { workloads: _, ...anyWorkload } = claimed()
      const refused = await promptOf(url, anyWorkload)
      expect([refused.isSent, refused.status]).toEqual([false, 424])
      expect(refused.text).toContain(`workload-settings: ${name}: `)
      expect((await promptOf(url, { ...anyWorkload, allow: [name] })).isSent).toBe(true)
    }
  },
  testMs,
)

test('goal: neither an operator key nor a workload.json is no requirement, and is refused', async () => {
  await using endpoint = await startEndpoint({ baseUrl: `${firstUrl}/v1`, gateway: claimed() })
  const { workloads: _, ...unpinned } = claimed({ operatorKey: null })
  const { exitCode, text } = await endpoint.command(['set'], JSON.stringify(unpinned))
  expect([exitCode, text]).toEqual([1, expect.stringContaining('operatorKey: null, and there are no workloads')])
  for (const workloads of [[], ['ab'], Array.from({ length: 9 }, (_, at) => `0${at}`.repeat(32)), [first, first]]) {
    expect((await endpoint.command(['set'], JSON.stringify(claimed({ workloads })))).exitCode).toBe(1)
  }
})
