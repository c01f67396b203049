// A gateway with a GPU as a relying party judges it, and a host that swaps, replays or leaves out its evidence.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import {
  clearRig,
  gatewayQuestion,
  newNonce,
  openRig,
  receiptKeys,
  simulatedOrigin,
} from '../../scripts/rigs/gateway/attestation.ts'
import { gpuEvidenceBytesMax, gpuNonce } from '../../src/attest/nvidia/bound.ts'
import { verifyBoundGpus } from '../../src/attest/nvidia/bound-verify.ts'
import { parseGpuPolicy } from '../../src/attest/nvidia/policy.ts'
import { keysDigest } from '../../src/attest/receipt/public-keys.ts'
import { fromBase64Url, fromUtf8, toBase64Url, utf8 } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { readSignedXml } from '../../src/client/verify/gpu/signed-xml.ts'
import { EnclaveGpus, nvidiaPrograms } from '../../src/enclave/gpus.ts'
import type { JudgeGpus } from '../../src/verifier/gpus.ts'
import { verifyGateway } from '../../src/verifier/verify-gateway.ts'
import { type Recorded, recordedPrograms } from '../rigs/attest/gpu/driver.ts'
import { policyDocument, type SimulatedGpu, simulatedGpu } from '../rigs/attest/gpu/simulated.ts'
import { type GpuGateway, gpuGateway, gpuPolicyText, gpuWorkload } from '../rigs/gateway/gpu-gateway.ts'

afterAll(clearRig)

const required = { count: 1, policy: gpuPolicyText }
const withGpus = gpuWorkload(required)
const without = gpuWorkload(null)

let gpu: SimulatedGpu
beforeAll(async () => {
  gpu = await simulatedGpu()
})

const judgeBy =
  (rims: readonly Uint8Array[]): JudgeGpus =>
  ({ bytes, statement, required: { count, policy: text }, asOfMs }) =>
    verifyBoundGpus({
      ...{ bytes, count, rims, readSignedXml, ocsp: [], roots: [gpu.roots], asOfMs },
      nonce: gpuNonce(statement),
      policy: parseGpuPolicy(text),
    })

type Answer = { readonly nonce: string; readonly body: string }

/** This gateway has answered. */
async function answered(gateway: GpuGateway): Promise<Answer> {
  using rig = await openRig(gateway)
  const nonce = newNonce()
  const { status, body } = await rig.get(`?nonce=${nonce}`)
  expect(status).toBe(200)
  return { nonce, body }
}

const good = async () => answered(await gpuGateway([gpu]))
const bare = async () => answered(await gpuGateway([], null))

async function judge(
  { nonce, body }: Answer,
  { workload = withGpus, judge: gpus }: { workload?: string; judge?: JudgeGpus },
) {
  const question = await gatewayQuestion(nonce, { workload: utf8(workload), configurationDigest: 'any' })
  const found = await verifyGateway(utf8(body), {
    ...question,
    pins: { ...question.pins, tcb: 'any', crl: 'any' },
    ...(gpus === undefined ? {} : { gpus }),
  })
  return {
    found,
    bad: found.checks
      .filter(({ outcome, required: must }) => outcome === 'fail' || (outcome !== 'pass' && must))
      .map(({ name }) => name),
    of: (name: string) => found.checks.find(check => check.name === name),
  }
}

test('goal: evidence, digest and nonce of a GPU are verified to the end, and the verdict says which GPUs were required', async () => {
  const answer = await good()
  const { found, bad, of } = await judge(answer, { judge: judgeBy([gpu.driver, gpu.vbios]) })
  expect([bad, found.ok, found.simulated]).toEqual([[], true, true])
  expect(of('gpu-required')?.reason).toStartWith('1 that meet policy ')
  expect(of('gpu-binding')?.outcome).toBe('pass')
  expect(of('gpu-0/gpu-nonce')?.outcome).toBe('pass')
  expect(of('gpu-0/gpu-measurements')?.reason).toStartWith('all ')
  expect(of('gpu-0/gpu-devtools')?.reason).toBe('off, by the driver in the measured guest')
  expect(found.gpus.map(({ facts }) => facts?.ueid)).toEqual(policyDocument().ueids)
  // Without OCSP responses their check is open, and said so.
  expect(of('gpu-0/gpu-chain-ocsp')).toMatchObject({ outcome: 'not-checked', required: false })
})

test('goal: without manifests measurements are open; without a judge the digest is compared, and more is not claimed', async () => {
  const answer = await good()
  const open = await judge(answer, { judge: judgeBy([]) })
  expect([open.bad, open.of('gpu-0/gpu-measurements')?.outcome]).toEqual([[], 'not-checked'])
  const alone = await judge(answer, {})
  expect([alone.bad, alone.of('gpus')?.outcome, alone.of('gpu-binding')?.outcome]).toEqual([[], 'not-checked', 'pass'])
  expect(alone.found.gpus).toEqual([])
})

test('goal: a worker without GPUs has the verdict of before', async () => {
  const answer = await bare()
  const { bad, found } = await judge(answer, { workload: without, judge: judgeBy([]) })
  expect(bad).toEqual([])
  expect(found.checks.filter(({ name }) => name.startsWith('gpu'))).toEqual([])
  expect(JSON.parse(answer.body).gpuEvidence).toBeUndefined()
})

test('goal: a host that swaps, replays, cuts or leaves out evidence of GPUs is seen', async () => {
  const answer = await good()
  const other = await good()
  const document = JSON.parse(answer.body)
  const changed = (gpuEvidence: string | undefined) => ({
    ...answer,
    body: JSON.stringify({ ...document, gpuEvidence }),
  })
  const binding = ['gpu-binding', 'gpus']
  const full = { judge: judgeBy([gpu.driver, gpu.vbios]) }
  expect((await judge(changed(undefined), full)).bad).toEqual(binding)
  expect((await judge(changed(JSON.parse(other.body).gpuEvidence), full)).bad).toEqual(binding)
  const bytes = fromBase64Url(document.gpuEvidence) ?? new Uint8Array(0)
  const flipped = Uint8Array.from(bytes, (byte, at) => (at === 200 ? byte ^ 1 : byte))
  expect((await judge(changed(toBase64Url(flipped)), full)).bad).toEqual(binding)
  // The receipt of a VM that was launched without: HOST_DATA is another, and so is the receipt.
  const launchedWithout = await judge(await bare(), full)
  expect(launchedWithout.bad).toEqual(expect.arrayContaining(['gpu-binding', 'gpus', 'workload']))
  // Evidence beside a workload.json that knows of none.
  const odd = await bare()
  const added = { ...odd, body: JSON.stringify({ ...JSON.parse(odd.body), gpuEvidence: document.gpuEvidence }) }
  expect((await judge(added, { ...full, workload: without })).bad).toEqual(['gpu-required', 'gpu-binding', 'gpus'])
})

test('goal: a GPU that is hidden, one that stands there twice, and a recorded report behind a good receipt fail', async () => {
  const full = judgeBy([gpu.driver, gpu.vbios])
  const badOf = async (gateway: GpuGateway) =>
    (await judge(await answered(gateway), { workload: gateway.workload, judge: full })).bad
  expect(await badOf(await gpuGateway([gpu], { ...required, count: 2 }))).toEqual(['gpu-count'])
  expect(await badOf(await gpuGateway([gpu, gpu], required))).toEqual(['gpu-count', 'gpu-distinct'])
  expect(await badOf(await gpuGateway([gpu, gpu], { ...required, count: 2 }))).toEqual(['gpu-distinct'])
  // A gateway that is not ours, whose receipt names more than anybody reads.
  const filled = () => Promise.resolve(new Uint8Array(gpuEvidenceBytesMax + 1).fill(0x20))
  expect(await badOf({ ...(await gpuGateway([gpu])), gpus: filled })).toEqual(['gpu-format', 'gpu-count'])
  // A host between driver and GPU that answers with what it saw before: receipt and digest are good.
  const { gpuEvidence } = JSON.parse((await good()).body)
  const replay = await gpuGateway([gpu])
  replay.programs.evidence = fromUtf8(fromBase64Url(gpuEvidence) ?? new Uint8Array(0))
  expect(await badOf(replay)).toEqual(['gpu-0/gpu-nonce'])
})

test('goal: GPUs that answer with too much, with nothing, or never cost the caller its answer, and no receipt is made', async () => {
  const refusalOf = async (change: Partial<Recorded>, timeoutMs = 30_000) => {
    const gateway = await gpuGateway([gpu])
    Object.assign(gateway.programs, change)
    let reports = 0
    const { evidence } = await simulatedOrigin()
    const origin = {
      ...gateway.origin,
      evidence: (...given: Parameters<typeof evidence>) => {
        reports += 1
        return evidence(...given)
      },
    }
    const logged: string[] = []
    using rig = await openRig({ ...gateway, origin, timeoutMs, logged })
    const { status, body } = await rig.get(`?nonce=${newNonce()}`)
    expect([status, JSON.parse(body).error.code, reports]).toEqual([503, 'attestation_unavailable', 0])
    return logged.join('')
  }
  const filled = JSON.stringify({ evidences: [{ arch: 'HOPPER', evidence: 'A'.repeat(gpuEvidenceBytesMax) }] })
  expect(await refusalOf({ evidence: filled })).toContain(`at most ${gpuEvidenceBytesMax}`)
  expect(await refusalOf({ evidence: '' })).toContain('GPUs: evidence of nvattest')
  expect(await refusalOf({ confidential: 'CC status: OFF' })).toContain('confidential mode is off')
  expect(await refusalOf({ run: () => new Promise(() => {}) }, 200)).toContain('no evidence within 200 ms')
})

test('goal: reports that were made for another VM, or for the bare nonce of the client, are for another nonce', async () => {
  const nonce = systemRandom(32)
  const own = keysDigest(receiptKeys().publicKeys)
  const theirs = new Uint8Array(32).fill(1)
  const enclave = new EnclaveGpus(required, {
    driver: nvidiaPrograms(recordedPrograms([gpu]).run),
    ...{ roots: [gpu.roots], clock: { nowMs: Date.now }, random: systemRandom },
  })
  const judged = async (madeFor: Uint8Array) => {
    const bytes = await enclave.evidence(madeFor)
    const { checks } = judgeBy([])({ bytes, statement: { nonce, keysDigest: own }, required, asOfMs: Date.now() })
    return checks.find(({ name }) => name === 'gpu-0/gpu-nonce')?.outcome
  }
  expect(await judged(gpuNonce({ nonce, keysDigest: own }))).toBe('pass')
  expect(await judged(gpuNonce({ nonce, keysDigest: theirs }))).toBe('fail')
  expect(await judged(nonce)).toBe('fail')
})
