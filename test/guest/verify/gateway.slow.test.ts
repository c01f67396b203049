// The fourth line of strongroom-verify, by the code of the endpoint: before a real enclave, as a process.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { startEndpoint } from '../../../scripts/rigs/instances/instance-endpoint.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { AttestedGateway, InferenceGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { drawGatewayKey } from '../../../src/guest/gateway/key.ts'
import { type GatewayLineQuestion, judgeGateway } from '../../../src/guest/verify/gateway.ts'

const testMs = 120_000
let bench: EnclaveBench
let url: string
beforeAll(async () => {
  bench = await EnclaveBench.start({ upstreams: [{ name: 'far' }] })
  url = bench.url((await bench.serve()).vmId)
}, testMs)
afterAll(() => bench[Symbol.asyncDispose]())

const expected = () => ({
  ...strictPolicy(),
  measurements: [new Uint8Array(Buffer.from(launchMeasurement, 'hex'))],
  idKeyDigest: bench.host.operatorKey,
})

function honest(changes: Partial<AttestedGateway> = {}): AttestedGateway {
  return {
    kind: 'attested',
    measurements: [launchMeasurement],
    operatorKey: toHex(bench.host.operatorKey),
    outside: ['far'],
    simulatedRoot: bench.host.rootPem,
    ...changes,
  }
}

type QuestionChanges = Partial<Omit<GatewayLineQuestion, 'paths'>> & {
  readonly own?: AttestedGateway
  readonly at?: string
  readonly ownKey?: string
}

async function lineOf(gateway: InferenceGateway, { own, at = url, ownKey, ...changes }: QuestionChanges = {}) {
  await using endpoint = await startEndpoint({ baseUrl: `${at}/v1`, gateway })
  if (own !== undefined) await endpoint.command(['set'], JSON.stringify(own))
  if (ownKey !== undefined) await Bun.write(endpoint.paths.gatewayKey, `${ownKey}\n`)
  const { outcome, reason } = await judgeGateway({
    paths: endpoint.paths,
    policy: expected(),
    allowlist: 'any',
    outside: ['far'],
    allow: [],
    keyDigest: null,
    simulatedRoot: utf8(bench.host.rootPem),
    ...changes,
  })
  return `${outcome}: ${reason}`
}

// Goal: it passes for exactly what the caller expects, and says what was checked and whose word was applied.
test(
  'a gateway that proves what is expected',
  async () => {
    const line = await lineOf(honest())
    expect(line).toMatch(
      /^pass: 127\.0\.0\.1:\d+, over its attested TLS key, with fresh evidence of a SIMULATED platform; /,
    )
    for (const words of [
      launchMeasurement,
      toHex(bench.host.operatorKey),
      'upstreams outside of its VM: far',
      'as the claim',
    ])
      expect(line).toContain(words)
    // The owner's own settings count as expected: there is nothing to compare them with.
    const own = await lineOf(honest({ measurements: ['11'.repeat(48)] }), {
      own: honest(),
      policy: strictPolicy(),
      outside: [],
    })
    expect(own).toMatch(/^pass: .*as you gave it to strongroom-gateway$/)
  },
  testMs,
)

// Goal: the claim's word alone does not pass: measurement, operator key and each outside upstream need the caller's
// own; another fails.
test(
  'what the host alone says',
  async () => {
    expect(await lineOf(honest(), { policy: strictPolicy() })).toMatch(
      /^not-checked: pin-measurement: only the host names what is expected: .*pin-operator-key: /,
    )
    expect(await lineOf(honest(), { outside: ['near'] })).toMatch(
      /^not-checked: pin-outside: .*far: name each with --allow-outside/,
    )
    const measurements = [new Uint8Array(48).fill(1)]
    expect(await lineOf(honest(), { policy: { ...expected(), measurements } })).toMatch(/^fail: pin-measurement: /)
    const idKeyDigest = new Uint8Array(48).fill(1)
    expect(await lineOf(honest(), { policy: { ...expected(), idKeyDigest } })).toMatch(/^fail: pin-operator-key: /)
    // More in the claim than is expected: the endpoint would take either.
    const both = honest({ measurements: [launchMeasurement, '11'.repeat(48)] })
    expect(await lineOf(both)).toMatch(/^fail: pin-measurement: /)
  },
  testMs,
)

// Goal: workload.json and settings are compared with the caller's; the key in use is the one that the VM drew.
test(
  'what workload.json the gateway may have, and whose the key is',
  async () => {
    const own = new Bun.CryptoHasher('sha256').update(bench.workloadText).digest()
    const pinned = honest({ workloads: [own.toString('hex')] })
    expect(await lineOf(pinned)).toContain(`workload.json ${own.toString('hex')}`)
    const of = (hostData: Uint8Array) => ({ policy: { ...expected(), hostData: new Uint8Array(hostData) } })
    expect(await lineOf(pinned, of(own))).toMatch(/^pass: /)
    expect(await lineOf(pinned, of(new Uint8Array(32)))).toMatch(/^fail: pin-workload: /)
    expect(await lineOf(honest(), of(own))).toMatch(/^fail: pin-workload: /)
    expect(await lineOf(honest({ workloads: ['11'.repeat(32)] }))).toMatch(/^fail: workload-pinned: HOST_DATA is /)
    const kept = honest({ allow: ['kept-responses'] })
    expect(await lineOf(kept)).toMatch(/^not-checked: pin-allow: .*kept-responses: allow each with --allow/)
    expect(await lineOf(kept, { allow: ['kept-responses'] })).toMatch(/^pass: /)

    const { key, drawn } = drawGatewayKey(systemRandom)
    const keyDigest = new Uint8Array(Buffer.from(drawn.secretSha256, 'hex'))
    expect(await lineOf(honest(), { keyDigest, ownKey: key })).toMatch(/^pass: /)
    for (const ownKey of [drawGatewayKey(systemRandom).key, 'gw_x_y', '']) {
      expect(await lineOf(honest(), { keyDigest, ownKey })).toMatch(/^fail: gateway-key: the key in /)
    }
  },
  testMs,
)

// Goal: a gateway that does not prove the claim's values, one that nobody vouches for, and one that is absent are
// distinct.
test(
  'a gateway that does not',
  async () => {
    const policy = { ...expected(), measurements: 'any' as const }
    expect(await lineOf(honest({ measurements: ['11'.repeat(48)] }), { policy })).toMatch(/^fail: .*measurement: abab/)
    expect(await lineOf(honest({ outside: [] }))).toMatch(/^fail: .*far/)
    expect(await lineOf(honest({ operatorKey: '22'.repeat(48) }))).toMatch(/^fail: .*operator-key/)
    expect(await lineOf(honest(), { simulatedRoot: null })).toMatch(/^fail: platform-is-hardware: SIMULATED/)
    expect(await lineOf(honest({ simulatedRoot: null }))).toMatch(/^fail: /)
    expect(await lineOf(honest(), { at: 'https://127.0.0.1:1' })).toMatch(
      /^not-checked: attestation: no evidence from 127/,
    )
    for (const [why, words] of [
      ['host', "it runs in the host's own process"],
      ['no-worker', 'its VM has no worker of its own'],
      ['elsewhere', 'it is run elsewhere'],
    ] as const) {
      const line = await lineOf({ kind: 'unattested', why, ca: null })
      expect(line).toMatch(
        /^not-checked: gateway: 127\.0\.0\.1:\d+ is not attested: .*; its operator can read your prompts$/,
      )
      expect(line).toContain(words)
    }
    expect(await lineOf({ kind: 'none' })).toBe('not-checked: gateway: this instance has no inference gateway')
  },
  testMs,
)
