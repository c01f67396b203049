// A gateway in a VM of its own, as a relying party judges it: the evidence of a real enclave process under its
// workload.json.

import { afterAll, describe, expect, test } from 'bun:test'
import { EnclaveBench } from '../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../scripts/rigs/enclave/workload.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { fromBase64Url, fromHex, toBase64Url, toHex, utf8 } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { keptResponsesDefault } from '../../src/contract/vm/kept-defaults.ts'
import { workloadText } from '../../src/contract/vm/workload.ts'
import { spkiDigestOf } from '../../src/linux/keys/spki.ts'
import { getOverTls } from '../../src/linux/net/tls-get.ts'
import type { GatewayQuestion } from '../../src/verifier/gateway.ts'
import { allPins } from '../../src/verifier/pins.ts'
import { verifyGateway } from '../../src/verifier/verify-gateway.ts'

const far = { url: 'https://far.example/v1', spkiSha256: 'ab'.repeat(32), models: ['big'] }
const bench = await EnclaveBench.start({ upstreams: [far] })
afterAll(() => bench[Symbol.asyncDispose]())
const { vmId } = await bench.serve()
const nonce = systemRandom(32)
const answer = await getOverTls({
  url: new URL(`/attestation?nonce=${toBase64Url(nonce)}`, bench.url(vmId)),
  ca: bench.caPem,
  timeoutMs: 30_000,
  bodyBytesMax: 1_048_576,
})
const policy = { ...strictPolicy(), measurements: [fromHex(launchMeasurement) ?? new Uint8Array(0)] }
const byKey = { ...policy, idKeyDigest: bench.host.operatorKey }
const sha256 = (text: string) => new Uint8Array(Bun.CryptoHasher.hash('sha256', text))

async function judge(changes: Partial<GatewayQuestion> = {}, body = answer.body) {
  const found = await verifyGateway(body, {
    nonce,
    asOf: systemClock.nowMs(),
    ageMsMax: 600_000,
    roots: [bench.host.root],
    policy: byKey,
    pins: { ...allPins, tcb: 'any', crl: 'any' },
    crl: undefined,
    allowlist: 'any',
    configurationDigest: 'any',
    tlsSpkiDigest: spkiDigestOf(answer.certificate),
    workload: utf8(bench.workloadText),
    outside: ['far'],
    ...changes,
  })
  const bad = found.checks.filter(check => check.outcome === 'fail').map(check => check.name)
  expect(found.ok).toBe(bad.length === 0)
  const textOf = (name: string) => found.checks.find(check => check.name === name)?.reason ?? ''
  return { found, bad, textOf }
}

describe('whose gateway it is', () => {
  test('goal: the operator key vouches, or HOST_DATA does, and the verdict says which; neither is a failure', async () => {
    const key = await judge()
    expect([key.bad, key.textOf('pin-allowlist')]).toEqual([[], expect.stringContaining('operator key')])
    const data = await judge({ policy: { ...policy, hostData: sha256(bench.workloadText) } })
    expect([data.bad, data.textOf('pin-allowlist')]).toEqual([[], expect.stringContaining('by HOST_DATA')])
    expect((await judge({ policy })).bad).toEqual(['pin-allowlist'])
    // An allowlist is a part of workload.json alone: with it pinned, upstreams may still be anybody's.
    const allowlist = {
      allowlist: bench.workload.allowlist,
      digest: key.found.gateway?.allowlistDigest ?? new Uint8Array(0),
    }
    expect((await judge({ policy, allowlist })).bad).toEqual(['pin-allowlist'])
  })

  test('goal: the verdict says for each model whether prompts leave what is measured, and to whom', async () => {
    expect((await judge()).textOf('workload-upstreams')).toBe(
      `OUTSIDE: big to far at https://far.example/v1 (key ${'ab'.repeat(32)}); inside the measured VM: w, file ${bench.workload.worker?.disk.fileSha256}`,
    )
  })

  test('goal: one that is allowed with its place passes there', async () => {
    expect((await judge({ outside: ['far=https://far.example'] })).bad).toEqual([])
  })

  test('goal: an upstream outside fails the verdict unless its name is allowed, also under HOST_DATA that somebody pinned', async () => {
    const pinned = { ...policy, hostData: sha256(bench.workloadText) }
    const elsewhere = ['far=https://other.example', 'far=http://far.example']
    for (const outside of [undefined, [], ['near'], elsewhere, 'far', true] as unknown as string[][]) {
      for (const whose of [{}, { policy: pinned }]) {
        const { bad, textOf } = await judge({ ...whose, outside })
        expect([bad, textOf('workload-upstreams')]).toEqual([
          ['workload-upstreams'],
          expect.stringContaining('not attested: far: allow it by outside: ["far=https://far.example"]'),
        ])
      }
    }
  })
})

describe('workload.json by its digest', () => {
  const own = sha256(bench.workloadText)
  const other = new Uint8Array(32).fill(1)

  test('goal: only those that are named pass, also under the right operator key; they say whose gateway it is', async () => {
    const pinned = await judge({ workloads: [other, own] })
    expect([pinned.bad, pinned.textOf('workload-pinned')]).toEqual([[], toHex(own)])
    const { bad, textOf } = await judge({ workloads: [other] })
    expect([bad, textOf('workload-pinned')]).toEqual([
      ['workload-pinned'],
      `HOST_DATA is ${toHex(own)}, which is none of those that you expect`,
    ])
    const alone = await judge({ policy, workloads: [own] })
    expect([alone.bad, alone.textOf('pin-allowlist')]).toEqual([[], 'one of 1 workload.json, by HOST_DATA'])
    expect((await judge({ workloads: [own], workload: null })).bad).toContain('workload-pinned')
  })

  test('goal: a setting that shows more to the host, or keeps content, fails unless it is allowed by name', async () => {
    const traces = { sampleRatio: 1, followParent: false, forwardParent: false }
    const cases = [
      [{ usageLabels: true as const }, 'usage-labels', 'the host gets `user` and `metadata` of each request'],
      [{ padStreams: 'off' as const }, 'no-padding', 'packets of streams show the length of each token'],
      [{ keptResponses: keptResponsesDefault }, 'kept-responses', 'the gateway keeps requests and responses'],
      [{ traces }, 'traces', 'the host gets times, finish reasons, counts'],
    ] as const
    for (const [gateway, name, words] of cases) {
      await using exposing = await EnclaveBench.start({ upstreams: [far], gateway })
      const served = await exposing.serve()
      const asked = await getOverTls({
        url: new URL(`/attestation?nonce=${toBase64Url(nonce)}`, exposing.url(served.vmId)),
        ca: exposing.caPem,
        timeoutMs: 30_000,
        bodyBytesMax: 1_048_576,
      })
      const of = {
        workload: utf8(exposing.workloadText),
        tlsSpkiDigest: spkiDigestOf(asked.certificate),
        policy: { ...policy, idKeyDigest: exposing.host.operatorKey },
        roots: [exposing.host.root],
      }
      const refused = await judge(of, asked.body)
      expect(refused.bad).toEqual(['workload-settings'])
      expect(refused.textOf('workload-settings')).toContain(words)
      expect(refused.textOf('workload-settings')).toContain(`allow it by allow: ["${name}"]`)
      const others = cases.map(([, other]) => other).filter(other => other !== name)
      expect((await judge({ ...of, allow: others }, asked.body)).bad).toEqual(['workload-settings'])
      expect((await judge({ ...of, allow: [name] }, asked.body)).bad).toEqual([])
    }
  }, 120_000)
})

describe('what is changed is caught by its name:', () => {
  const everywhere = (group: string) =>
    ['gateway', 'inference-router', 'inference-worker', 'metrics-collector', 'cluster-state-metrics'].map(
      target => `${target}/${group}`,
    )
  const changed = (changes: Partial<typeof bench.workload>) => utf8(workloadText({ ...bench.workload, ...changes }))

  test('goal: another workload.json, by one upstream more or by nothing but its limits', async () => {
    for (const workload of [
      changed({ upstreams: [] }),
      changed({ gateway: { ...bench.workload.gateway, queueMax: 1 } }),
      changed({ controlKey: 'A'.repeat(43) }),
    ]) {
      const { bad } = await judge({ workload })
      expect(bad).toEqual(expect.arrayContaining(['workload', 'gateway-configuration', ...everywhere('allowlist')]))
    }
  })

  test('goal: no workload.json at all, and one that is not the schema', async () => {
    expect((await judge({ workload: null })).bad).toEqual(everywhere('allowlist'))
    expect((await judge({ workload: utf8('{}') })).bad).toEqual(expect.arrayContaining(['workload']))
    expect((await judge({ workload: new Uint8Array(2_000_000) })).bad).toEqual(expect.arrayContaining(['workload']))
  })

  test('goal: another worker than the allowlist of workload.json admits', async () => {
    const workloads = bench.workload.allowlist.workloads.map(item =>
      item.workload === 'inference-worker'
        ? { ...item, images: [{ digest: '00'.repeat(32), commands: [['/bin/other']] }] }
        : item,
    )
    const { bad } = await judge({ workload: changed({ allowlist: { schemaVersion: 2, workloads } }) })
    expect(bad).toEqual(expect.arrayContaining(['workload-allowlist', 'inference-worker/admission']))
  })

  test('goal: another TLS key, another nonce, another operator, another image', async () => {
    expect((await judge({ tlsSpkiDigest: new Uint8Array(32) })).bad).toEqual(['tls-binding'])
    expect((await judge({ nonce: new Uint8Array(32) })).bad).toEqual(['attestation-nonce'])
    const strange = await judge({ policy: { ...policy, idKeyDigest: new Uint8Array(48).fill(3) } })
    expect(strange.bad).toEqual(expect.arrayContaining(everywhere('operator-key')))
    const measured = await judge({ policy: { ...byKey, measurements: [new Uint8Array(48).fill(3)] } })
    expect(measured.bad).toEqual(expect.arrayContaining(everywhere('measurement')))
  })

  test('goal: one bit of HOST_DATA in a report', async () => {
    const document = JSON.parse(Buffer.from(answer.body).toString())
    const report = fromBase64Url(document.receipts[0].receipt.evidence.report) ?? new Uint8Array(0)
    // AMD 56860, table 23: HOST_DATA.
    const at = 0xc0
    report[at] = (report[at] ?? 0) ^ 1
    document.receipts[0].receipt.evidence.report = toBase64Url(report)
    const { bad } = await judge({}, utf8(JSON.stringify(document)))
    expect(bad).toEqual(expect.arrayContaining(['gateway/evidence', 'gateway/allowlist']))
  })
})
