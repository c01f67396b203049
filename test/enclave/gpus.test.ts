// The GPUs of a gateway's VM, behind recorded programs of NVIDIA's: which let the worker start, and what is stated.

import { beforeAll, expect, test } from 'bun:test'
import { gpuEvidenceBytesMax, readBoundGpuEvidence } from '../../src/attest/nvidia/bound.ts'
import { NVIDIA_ROOTS } from '../../src/attest/nvidia/roots.ts'
import { fromUtf8, toHex } from '../../src/base/bytes.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { EnclaveGpus, type GpusDeps, nvidiaPrograms } from '../../src/enclave/gpus.ts'
import { type Recorded, recordedPrograms } from '../rigs/attest/gpu/driver.ts'
import { asOfMs, policyDocument, type SimulatedGpu, simulatedGpu } from '../rigs/attest/gpu/simulated.ts'

let gpu: SimulatedGpu
beforeAll(async () => {
  gpu = await simulatedGpu()
})

const policyText = () => JSON.stringify({ ...policyDocument(), devtools: 'refuse' })

type Given = { readonly count?: number; readonly policy?: string; readonly roots?: GpusDeps['roots'] }

function enclaveGpus(programs: Recorded, { count = 1, policy = policyText(), roots }: Given = {}): EnclaveGpus {
  return new EnclaveGpus(
    { count, policy },
    {
      driver: nvidiaPrograms(programs.run),
      roots: roots ?? [NVIDIA_ROOTS, gpu.roots],
      clock: { nowMs: () => asOfMs },
      random: systemRandom,
    },
  )
}

async function refusalOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof Fault)) throw new Error('it was not refused', { cause: error })
  expect(error.code).toBe('attest.unavailable')
  return error.message
}

test('goal: a good GPU may work, and not before it was judged', async () => {
  const programs = recordedPrograms([gpu])
  await enclaveGpus(programs).prepare()
  expect(programs.asked.map(line => line.replace(/[0-9a-f]{64}/, 'NONCE'))).toEqual([
    'nvidia-smi conf-compute -f',
    'nvidia-smi conf-compute -d',
    'nvattest collect-evidence --device gpu --nonce NONCE --format json',
    'nvidia-smi conf-compute -srs 1',
  ])
})

test('goal: each start asks with a nonce of its own, so that recorded evidence lets nothing start', async () => {
  const programs = recordedPrograms([gpu])
  const gpus = enclaveGpus(programs)
  await gpus.prepare()
  const nonces = () => programs.asked.flatMap(line => /--nonce (\S+)/.exec(line)?.[1] ?? [])
  const { evidences } = JSON.parse(fromUtf8(await gpus.evidence(new Uint8Array(32))))
  programs.evidence = JSON.stringify({ evidences })
  expect(await refusalOf(gpus.prepare())).toContain('gpu-nonce')
  expect(new Set(nonces()).size).toBe(3)
})

test('goal: a GPU outside of confidential mode, in DevTools mode, or of which nobody knows, does not work', async () => {
  const changes: [Partial<Recorded>, string][] = [
    [{ confidential: 'CC status: OFF\n' }, 'confidential mode is off'],
    [{ confidential: '' }, 'confidential mode is off'],
    [{ confidential: 'CC status: ON\nCC status: OFF\n' }, 'confidential mode is off'],
    [{ devtools: 'DevTools Mode: OFF\nDevTools Mode: ON\n' }, 'DevTools mode: unknown'],
    [{ confidential: 'CC status: ON, it said\n' }, 'confidential mode is off'],
    [{ devtools: 'DevTools Mode: ON\n' }, 'DevTools mode: on'],
    [{ devtools: 'something else\n' }, 'DevTools mode: unknown'],
  ]
  for (const [change, problem] of changes) {
    const programs = Object.assign(recordedPrograms([gpu]), change)
    expect(await refusalOf(enclaveGpus(programs).prepare())).toContain(problem)
    expect(programs.asked).not.toContain('nvidia-smi conf-compute -srs 1')
  }
  const accepted = Object.assign(recordedPrograms([gpu]), { devtools: 'DevTools Mode: ON\n' })
  await enclaveGpus(accepted, { policy: JSON.stringify(policyDocument()) }).prepare()
})

test('goal: a GPU that comes into DevTools mode, or out of confidential mode, after the start is in no further receipt', async () => {
  const programs = recordedPrograms([gpu])
  const gpus = enclaveGpus(programs)
  await gpus.prepare()
  const stated = () => gpus.evidence(systemRandom(32))
  await stated()
  programs.devtools = 'DevTools Mode: ON\n'
  expect(await refusalOf(stated())).toBe('GPUs: DevTools mode: on, and the policy refuses it')
  programs.devtools = 'DevTools Mode: OFF\n'
  programs.confidential = 'CC status: OFF\n'
  expect(await refusalOf(stated())).toBe('GPUs: confidential mode is off')
  programs.confidential = 'CC status: ON\n'
  await stated()
})

test('goal: evidence that no reader takes for its size is refused where it is made', async () => {
  const evidences = [{ arch: 'HOPPER', evidence: 'A'.repeat(gpuEvidenceBytesMax) }]
  const programs = Object.assign(recordedPrograms([gpu]), { evidence: JSON.stringify({ evidences }) })
  expect(await refusalOf(enclaveGpus(programs).evidence(systemRandom(32)))).toEndWith(`at most ${gpuEvidenceBytesMax}`)
})

test('goal: a GPU too few or twice, one that the policy does not name, and one of another root keep the worker from its start', async () => {
  const refused = async (programs: Recorded, given: Given, problem: string) => {
    expect(await refusalOf(enclaveGpus(programs, given).prepare())).toContain(problem)
    expect(programs.asked).not.toContain('nvidia-smi conf-compute -srs 1')
  }
  await refused(recordedPrograms([gpu]), { count: 2 }, 'gpu-count: evidence of 1 GPUs, and workload.json requires 2')
  await refused(recordedPrograms([gpu, gpu]), { count: 2 }, 'gpu-distinct')
  await refused(recordedPrograms([gpu, gpu]), { count: 1 }, 'gpu-count')
  const policy = JSON.stringify({ ...policyDocument(), driverVersions: ['580.65.06'] })
  await refused(recordedPrograms([gpu]), { policy }, 'gpu-policy-driver-version')
  await refused(recordedPrograms([gpu]), { roots: [NVIDIA_ROOTS] }, 'gpu-chain')
})

test('goal: programs that fail, or write something else, are a refusal with words, and a policy that is none one at the start', async () => {
  for (const evidence of [
    '',
    '[]',
    '{"result_code": 1}',
    '{"evidences": []}',
    '{"evidences": [1]}',
    '{"a": 1, "a": 2}',
  ]) {
    const programs = Object.assign(recordedPrograms([gpu]), { evidence })
    expect(await refusalOf(enclaveGpus(programs).prepare())).toContain('GPU')
  }
  const absent = recordedPrograms([gpu])
  const failing = new EnclaveGpus(
    { count: 1, policy: policyText() },
    {
      driver: nvidiaPrograms(() => Promise.reject(new Fault('host.command_failed', 'nvidia-smi: not found'))),
      ...{ roots: [], clock: { nowMs: () => asOfMs }, random: systemRandom },
    },
  )
  expect(await refusalOf(failing.prepare())).toBe('GPUs: ask the driver: nvidia-smi: not found')
  expect(() => enclaveGpus(absent, { policy: '{}' })).toThrow('workload.json: the policy for GPUs')
})

test('goal: the evidence that is stated is for the nonce, with the word of the driver', async () => {
  const nonce = systemRandom(32)
  const { devtools, evidence } = readBoundGpuEvidence(await enclaveGpus(recordedPrograms([gpu])).evidence(nonce))
  expect(devtools).toBe('off')
  // SPDM 1.1, GET_MEASUREMENTS: the nonce stands behind the header of four bytes.
  expect(evidence.map(({ report }) => toHex(report.slice(4, 36)))).toEqual([toHex(nonce)])
})
