// Goal: evidence of GPUs counts only where workload.json requires it and the worker's receipt names exactly it; what
// was not judged is never shown as passed.

import { describe, expect, test } from 'bun:test'
import { workloadOf } from '../../scripts/rigs/enclave/workload.ts'
import type { StatementOf } from '../../src/attest/receipt/statement.ts'
import { pass } from '../../src/attest/verdict.ts'
import { utf8 } from '../../src/base/bytes.ts'
import { workloadText } from '../../src/contract/vm/workload.ts'
import { type GpuQuestion, type JudgeGpus, judgeGpus } from '../../src/verifier/gpus.ts'
import { readWorkload } from '../../src/verifier/workload.ts'

const sha256 = (bytes: Uint8Array | string) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
const bytes = utf8('evidence')
const sent = Buffer.from(bytes).toString('base64url')
const base = workloadOf({ controlKey: 'A'.repeat(43), upstreams: [], gateway: {} })
const workloadWith = (gpus: object | null) =>
  readWorkload(
    utf8(
      workloadText({ ...base, worker: { ...base.worker, ...(gpus === null ? {} : { gpus }) } as typeof base.worker }),
    ),
  )
const required = workloadWith({ count: 2, policy: '{}' })
const workerOf = (gpuEvidenceDigest: Uint8Array | null) => ({ gpuEvidenceDigest }) as StatementOf<'workload'>
const worker = workerOf(sha256(bytes))

const judged = { checks: [pass('gpu-0/nonce', 'it holds')], simulated: true, gpus: [] }
const judge: JudgeGpus = () => judged
const ask = (changes: Partial<GpuQuestion> = {}) => {
  const question = { worker, workload: required, sent, judge, asOfMs: 7, ...changes }
  const { checks, simulated, gpus } = judgeGpus(question)
  return {
    lines: checks.map(({ name, outcome, required: must }) => `${name} ${outcome}${must ? '' : ' by choice'}`),
    checks,
    simulated,
    gpus,
  }
}

test('goal: where nothing speaks of a GPU there are no checks', () => {
  for (const workload of [null, workloadWith(null), readWorkload(utf8('x'))]) {
    for (const none of [null, workerOf(null)]) {
      expect(ask({ workload, worker: none, sent: undefined })).toMatchObject({ lines: [], simulated: false, gpus: [] })
    }
  }
})

test('goal: evidence that is named is judged with the statement, the requirement and the time', () => {
  const asked: object[] = []
  const found = ask({
    judge: evidence => {
      asked.push(evidence)
      return judged
    },
  })
  expect(asked).toEqual([{ bytes, statement: worker, required: { count: 2, policy: '{}' }, asOfMs: 7 }])
  expect([found.lines, found.simulated]).toEqual([['gpu-required pass', 'gpu-binding pass', 'gpu-0/nonce pass'], true])
  expect(found.checks.map(({ reason }) => reason)).toEqual([
    `2 that meet policy ${Buffer.from(sha256('{}')).toString('hex')}`,
    Buffer.from(sha256(bytes)).toString('hex'),
    'it holds',
  ])
})

describe('what is not judged', () => {
  const nothing = 'gpus not-checked'
  const cases: readonly (readonly [string, Partial<GpuQuestion>, readonly string[], string])[] = [
    [
      'no workload.json',
      { workload: null },
      ['gpu-required fail', 'gpu-binding pass', nothing],
      'no workload.json requires GPUs, and there is evidence of some',
    ],
    [
      'a workload.json without GPUs',
      { workload: workloadWith(null) },
      ['gpu-required fail', 'gpu-binding pass', nothing],
      'no workload.json requires GPUs, and there is evidence of some',
    ],
    [
      'no worker',
      { worker: null },
      ['gpu-required pass', 'gpu-binding not-checked', nothing],
      "the worker's receipt cannot be read",
    ],
    [
      'no evidence in the receipt',
      { worker: workerOf(null) },
      ['gpu-required pass', 'gpu-binding fail', nothing],
      "the worker's receipt names no evidence of GPUs",
    ],
    [
      'none sent',
      { sent: undefined },
      ['gpu-required pass', 'gpu-binding fail', nothing],
      "no evidence of GPUs came with the worker's receipt, which names some",
    ],
    [
      'what is no base64url',
      { sent: '?' },
      ['gpu-required pass', 'gpu-binding fail', nothing],
      "no evidence of GPUs came with the worker's receipt, which names some",
    ],
    [
      'other evidence',
      { worker: workerOf(new Uint8Array(32)) },
      ['gpu-required pass', 'gpu-binding fail', nothing],
      "the evidence of GPUs is not that of the worker's receipt",
    ],
    [
      'nothing but a requirement',
      { worker: workerOf(null), sent: undefined },
      ['gpu-required pass', 'gpu-binding fail', nothing],
      "the worker's receipt names no evidence of GPUs",
    ],
  ]
  test.each(cases)('goal: %s', (_, changes, lines, reason) => {
    const never: JudgeGpus = () => {
      throw new Error('it was judged')
    }
    for (const by of [never, undefined]) {
      const found = ask({ ...changes, judge: by })
      expect([found.lines, found.simulated, found.gpus]).toEqual([[...lines], false, []])
      expect(found.checks.map(check => check.reason)).toContain(reason)
    }
  })

  test('goal: without a judge the digest is compared, and more is not claimed', () => {
    const found = ask({ judge: undefined })
    expect([found.lines, found.simulated]).toEqual([
      ['gpu-required pass', 'gpu-binding pass', 'gpus not-checked by choice'],
      false,
    ])
    expect(found.checks[2]?.reason).toEndWith('; they are not verified here')
  })

  test('goal: a judge that throws is a failed check', () => {
    const found = ask({
      judge: () => {
        throw new Error('no manifest')
      },
    })
    expect([found.lines, found.simulated, found.checks[2]?.reason]).toEqual([
      ['gpu-required pass', 'gpu-binding pass', 'gpus fail'],
      false,
      'no manifest',
    ])
  })
})
