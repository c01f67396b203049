// A gateway with a GPU as a relying party judges it, and a host that swaps, replays or leaves out its evidence.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { workloadOf } from '../../scripts/rigs/enclave/workload.ts'
import {
  allowlistText,
  clearRig,
  gatewayQuestion,
  newNonce,
  openRig,
  receiptKeys,
  simulatedOrigin,
} from '../../scripts/rigs/gateway/attestation.ts'
import { gpuNonce } from '../../src/attest/nvidia/bound.ts'
import { verifyBoundGpus } from '../../src/attest/nvidia/bound-verify.ts'
import { parseGpuPolicy } from '../../src/attest/nvidia/policy.ts'
import { keysDigest } from '../../src/attest/receipt/public-keys.ts'
import { fromBase64Url, toBase64Url, utf8 } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { readSignedXml } from '../../src/cli/verify/gpu/signed-xml.ts'
import { parseAllowlist } from '../../src/contract/vm/allowlist.ts'
import { workloadText } from '../../src/contract/vm/workload.ts'
import { EnclaveGpus, nvidiaPrograms } from '../../src/enclave/gpus.ts'
import { verifyGateway } from '../../src/verifier/gateway.ts'
import type { JudgeGpus } from '../../src/verifier/gpus.ts'
import { recordedPrograms } from '../rigs/attest/gpu/driver.ts'
import { policyDocument, type SimulatedGpu, simulatedGpu } from '../rigs/attest/gpu/simulated.ts'

afterAll(clearRig)

const policy = JSON.stringify({ ...policyDocument(), ocspMaximumAgeSeconds: 'any', devtools: 'refuse' })
const required = { count: 1, policy }
const base = workloadOf({ controlKey: 'A'.repeat(43), upstreams: [], gateway: {} })
const read = parseAllowlist(utf8(allowlistText))
if (!read.ok || base.worker === null) throw new Error('the rig has an allowlist and a worker')
const { worker } = base
const withGpus = workloadText({ ...base, allowlist: read.value, worker: { ...worker, gpus: required } })
const without = workloadText({ ...base, allowlist: read.value })
const sha256 = (bytes: string | Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))

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

/** A gateway under this workload.json has answered. */
async function answered(workload: string, hasGpus: boolean): Promise<Answer> {
  const origin = { ...(await simulatedOrigin()), hostData: sha256(workload) }
  const enclave = new EnclaveGpus(required, {
    driver: nvidiaPrograms(recordedPrograms([gpu]).run),
    roots: [gpu.roots],
    clock: { nowMs: Date.now },
    random: systemRandom,
  })
  const gpus = hasGpus ? { gpus: (nonce: Uint8Array) => enclave.evidence(nonce) } : {}
  using rig = await openRig({ origin, configurationDigest: sha256(workload), ...gpus })
  const nonce = newNonce()
  const { status, body } = await rig.get(`?nonce=${nonce}`)
  expect(status).toBe(200)
  return { nonce, body }
}

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
  const answer = await answered(withGpus, true)
  const { found, bad, of } = await judge(answer, { judge: judgeBy([gpu.driver, gpu.vbios]) })
  expect([bad, found.ok, found.simulated]).toEqual([[], true, true])
  expect(of('gpu-required')?.reason).toStartWith('1 that meet policy ')
  expect(of('gpu-binding')?.outcome).toBe('pass')
  expect(of('gpu-0/gpu-nonce')?.outcome).toBe('pass')
  expect(of('gpu-0/gpu-measurements')?.reason).toStartWith('all ')
  expect(of('gpu-0/gpu-devtools')?.reason).toBe('off, as the driver in the measured guest says')
  // Without OCSP responses their check is open, and said so.
  expect(of('gpu-0/gpu-chain-ocsp')).toMatchObject({ outcome: 'not-checked', required: false })
})

test('goal: without manifests measurements are open; without a judge the digest is compared, and more is not claimed', async () => {
  const answer = await answered(withGpus, true)
  const open = await judge(answer, { judge: judgeBy([]) })
  expect([open.bad, open.of('gpu-0/gpu-measurements')?.outcome]).toEqual([[], 'not-checked'])
  const bare = await judge(answer, {})
  expect([bare.bad, bare.of('gpus')?.outcome, bare.of('gpu-binding')?.outcome]).toEqual([[], 'not-checked', 'pass'])
})

test('goal: a worker without GPUs has the verdict of before', async () => {
  const answer = await answered(without, false)
  const { bad, found } = await judge(answer, { workload: without, judge: judgeBy([]) })
  expect(bad).toEqual([])
  expect(found.checks.filter(({ name }) => name.startsWith('gpu'))).toEqual([])
  expect(JSON.parse(answer.body).gpuEvidence).toBeUndefined()
})

test('goal: a host that swaps, replays, cuts or leaves out evidence of GPUs is seen', async () => {
  const answer = await answered(withGpus, true)
  const other = await answered(withGpus, true)
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
  const bare = await judge(await answered(without, false), full)
  expect(bare.bad).toEqual(expect.arrayContaining(['gpu-binding', 'gpus', 'workload']))
  // Evidence beside a workload.json that knows of none.
  const odd = await answered(without, false)
  const added = { ...odd, body: JSON.stringify({ ...JSON.parse(odd.body), gpuEvidence: document.gpuEvidence }) }
  expect((await judge(added, { ...full, workload: without })).bad).toEqual(['gpu-required', 'gpu-binding', 'gpus'])
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
