// Goal: a workload is admitted only when the allowlist names exactly this image and this command for it.

import { expect, test } from 'bun:test'
import { toHex } from '../../../src/base/bytes.ts'
import { type AllowedWorkload, admits, type WorkloadCandidate } from '../../../src/contract/vm/allowlist.ts'

const worker = { imageDigest: new Uint8Array(32).fill(7), command: ['/usr/bin/llama-server', '--threads', '2'] }
const candidate: WorkloadCandidate = { workload: 'inference-worker', ...worker }
const listOf = (...workloads: AllowedWorkload[]) => ({ schemaVersion: 2 as const, workloads })

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
      images: [{ digest: toHex(worker.imageDigest), commands: [worker.command] }],
    })
    const admission = admits(allowlist, { ...candidate, ...change })
    expect(admission.ok).toBe(ok)
    if (!admission.ok) expect(admission.fault.code).toBe('image.invalid')
  })
}

test('goal: an image runs with its own commands alone, not with those of another', () => {
  const other = { imageDigest: new Uint8Array(32).fill(9), command: ['/usr/bin/other'] }
  const second = ['/usr/bin/llama-server', '--threads', '4']
  const row: AllowedWorkload = {
    workload: 'inference-worker',
    images: [
      { digest: toHex(worker.imageDigest), commands: [worker.command, second] },
      { digest: toHex(other.imageDigest), commands: [other.command] },
    ],
  }
  const runs = (imageDigest: Uint8Array, command: string[]) =>
    admits(listOf(row), { ...candidate, imageDigest, command }).ok
  const commands = [worker.command, second, other.command]
  expect(commands.map(command => runs(worker.imageDigest, command))).toEqual([true, true, false])
  expect(commands.map(command => runs(other.imageDigest, command))).toEqual([false, false, true])
  const crossed = admits(listOf(row), { ...candidate, command: other.command })
  expect(crossed.ok || crossed.fault.message).toBe(
    `inference-worker: this command is not on the allowlist for image ${toHex(worker.imageDigest)}: ["/usr/bin/other"]`,
  )
})

test('goal: an image that stands in the list twice has the commands of both, and two entries for one workload are refused', () => {
  const digest = toHex(worker.imageDigest)
  const row: AllowedWorkload = {
    workload: 'inference-worker',
    images: [
      { digest, commands: [['/usr/bin/other']] },
      { digest, commands: [worker.command] },
    ],
  }
  expect(admits(listOf(row), candidate).ok).toBe(true)
  expect(admits(listOf(row, row), candidate).ok).toBe(false)
  expect(admits(listOf(), candidate).ok).toBe(false)
})
