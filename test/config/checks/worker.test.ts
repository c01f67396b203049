// Goal: a configuration that names a model's disk alone is refused on the host, where only a file can be served.

import { expect, test } from 'bun:test'
import { hasWorker, workerProblems } from '../../../src/config/checks/worker.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import { workerGpusMax } from '../../../src/contract/vm/workload.ts'

const [file, disk] = [{ model_file: '/m.gguf' }, { model_disk: 'm' }]
const none = { model_file: '', model_disk: '' }

test('goal: a file or a disk make a worker', () => {
  expect([none, { ...none, ...file }, { ...none, ...disk }, { ...file, ...disk }].map(hasWorker)).toEqual([
    ...[false, true, true, true],
  ])
})

test('goal: in a VM either will do, on the host a disk alone will not', () => {
  for (const worker of [none, { ...none, ...file }, { ...file, ...disk }]) {
    expect([workerProblems('vm', worker), workerProblems('host', worker)]).toEqual([[], []])
  }
  expect(workerProblems('vm', { ...none, ...disk })).toEqual([])
  expect(workerProblems('host', { ...none, ...disk })).toEqual([
    {
      field: 'inference.worker.model_file',
      message: 'must name the GGUF file of model_disk (m): a gateway on the host serves the file',
    },
  ])
})

test('goal: GPUs need a policy, a worker, a measured VM of snp, and each stands there once', () => {
  const problems = (text: string) => {
    const verdict = parseConfig(text, 'f')
    return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
  }
  const worker = '[inference.worker]\nmodel_disk = "m"\n'
  const gpu = 'gpu = ["0000:41:00.0"]\n'
  const policy = 'gpu_policy = "/p.json"\n'
  expect(problems(worker + gpu + policy)).toEqual([])
  expect(problems(`platform = "snp"\n${worker}${gpu}${policy}`)).toEqual([])
  const gpus = (count: number) =>
    `gpu = [${Array.from({ length: count }, (_, at) => `"0000:4${at}:00.0"`).join(', ')}]\n${policy}`
  expect(problems(worker + gpus(workerGpusMax))).toEqual([])
  const refused = [
    [worker + gpus(workerGpusMax + 1), 'gpu: '],
    [worker + gpu, 'gpu_policy: must name the policy'],
    [worker + policy, 'gpu_policy: needs gpu'],
    [`[inference.worker]\n${gpu}${policy}`, 'gpu: needs model_disk or model_file'],
    [
      `[inference]\nplacement = "host"\n[inference.worker]\nmodel_file = "/m"\n${gpu}${policy}`,
      'gpu: needs inference.placement',
    ],
    [`platform = "kvm"\n${worker}${gpu}${policy}`, 'gpu: needs platform "snp" or "auto", not "kvm"'],
    [`platform = "tcg"\n${worker}${gpu}${policy}`, 'gpu: needs platform "snp" or "auto", not "tcg"'],
    [`${worker}gpu = ["0000:41:00.0", "0000:41:00.0"]\n${policy}`, 'gpu.1: 0000:41:00.0 stands here twice'],
    [`${worker}gpu = ["41:00.0"]\n${policy}`, 'gpu.0: '],
    [`${worker}gpu = ["0000:41:00.0,x-no-mmap=on"]\n${policy}`, 'gpu.0: '],
  ] as const
  for (const [text, start] of refused) {
    const found = problems(text)
    expect(found).toHaveLength(1)
    expect(found[0]).toStartWith(`inference.worker.${start}`)
  }
})
