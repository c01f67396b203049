// Goal: a workload is admitted only when the allowlist names exactly this image and this command for it.

import { expect, test } from 'bun:test'
import { toHex } from '../../src/base/bytes.ts'
import { type AllowedWorkload, admits, type WorkloadCandidate } from '../../src/contract/allowlist.ts'

const worker = { imageDigest: new Uint8Array(32).fill(7), command: ['/usr/bin/llama-server', '--threads', '2'] }
const candidate: WorkloadCandidate = { workload: 'inference-worker', ...worker }
const listOf = (...workloads: AllowedWorkload[]) => ({ schemaVersion: 1 as const, workloads })

const cases: [name: string, change: Partial<WorkloadCandidate>, ok: boolean][] = [
  ['the very same', {}, true],
  ['another workload with the same image and command', { workload: 'gateway' }, false],
  ['another image', { imageDigest: new Uint8Array(32).fill(8) }, false],
  ['a shorter digest', { imageDigest: new Uint8Array(31).fill(7) }, false],
  ['no digest', { imageDigest: new Uint8Array() }, false],
  ['an argument more', { command: [...worker.command, '--offline'] }, false],
  ['an argument less', { command: worker.command.slice(0, -1) }, false],
  ['an argument changed', { command: ['/usr/bin/llama-server', '--threads', '3'] }, false],
  ['arguments joined', { command: ['/usr/bin/llama-server', '--threads 2'] }, false],
  ['arguments in another order', { command: worker.command.toReversed() }, false],
  ['no command', { command: [] }, false],
]
for (const [name, change, ok] of cases) {
  test(`goal: ${name} is ${ok ? 'admitted' : 'refused'}`, () => {
    const allowlist = listOf({
      workload: 'inference-worker',
      imageDigests: [toHex(worker.imageDigest)],
      commands: [worker.command],
    })
    const admission = admits(allowlist, { ...candidate, ...change })
    expect(admission.ok).toBe(ok)
    if (!admission.ok) expect(admission.fault.code).toBe('image.invalid')
  })
}

test('goal: every approved image may run with every approved command, and two entries for one workload are refused', () => {
  const other = { imageDigest: new Uint8Array(32).fill(9), command: ['/usr/bin/other'] }
  const row: AllowedWorkload = {
    workload: 'inference-worker',
    imageDigests: [worker, other].map(one => toHex(one.imageDigest)),
    commands: [worker.command, other.command],
  }
  expect(admits(listOf(row), { ...candidate, command: other.command }).ok).toBe(true)
  expect(admits(listOf(row), { ...candidate, imageDigest: other.imageDigest }).ok).toBe(true)
  expect(admits(listOf(row, row), candidate).ok).toBe(false)
  expect(admits(listOf(), candidate).ok).toBe(false)
})
