import { expect, test } from 'bun:test'
import { modelContextTokens } from '../../src/config/context.ts'

type Settings = Parameters<typeof modelContextTokens>[0]

const settings = (worker: object, upstreams: object[], baseUrl = ''): Settings =>
  ({ inference: { worker, upstreams }, instances: { inference_base_url: baseUrl } }) as unknown as Settings
const worker = { model_file: '/m.gguf', model_disk: '', model: 'a', context_tokens: 4096 }
const upstream = (contextTokens: number, ...models: string[]) => ({ models, context_tokens: contextTokens })

// Goal: an instance gets the smallest context of its model's servers, and none where that is not known.
test.each([
  ['the worker', settings(worker, []), 4096],
  ['the worker, from a disk', settings({ ...worker, model_file: '', model_disk: 'm' }, []), 4096],
  ['no worker', settings({ ...worker, model_file: '' }, []), null],
  ['a worker with its model on a disk', settings({ ...worker, model_file: '', model_disk: 'm' }, []), 4096],
  ['a worker of another model', settings({ ...worker, model: 'b' }, []), null],
  ['the smallest of all', settings(worker, [upstream(8192, 'a'), upstream(2048, 'b', 'a')]), 2048],
  ['others do not count', settings(worker, [upstream(1024, 'b')]), 4096],
  ['one unknown', settings(worker, [upstream(0, 'a')]), null],
  ['another gateway', settings(worker, [], 'https://gateway.test/v1'), null],
] as const)('%s', (_name, given, expected) => {
  expect(modelContextTokens(given, 'a')).toBe(expected)
})
