// Goal: a configuration that names a model's disk alone is refused on the host, where only a file can be served.

import { expect, test } from 'bun:test'
import { hasWorker, workerProblems } from '../../../src/config/checks/worker.ts'

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
