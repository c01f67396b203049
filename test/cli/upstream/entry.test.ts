// Goal: an upstream and its price come into the file and go again; nothing else of it changes, and what a program
// cannot change is refused.

import { expect, test } from 'bun:test'
import { type NewUpstream, upstreamName, withoutUpstream, withUpstream } from '../../../src/cli/upstream/entry.ts'
import { parseConfig } from '../../../src/config/parse.ts'

const rack: NewUpstream = {
  name: 'rack-7',
  url: 'https://10.0.0.5:8000/v1',
  engine: 'vllm',
  model: 'llama-70b',
  isEmbedding: false,
  contextTokens: 131_072,
  keyFile: null,
  caFile: '/etc/strongroom/ca.pem',
  price: { prompt: '0.50', completion: '1.50' },
}

function sourceOf(text: string) {
  const verdict = parseConfig(text, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  return { text, config: verdict.config, file: 'f' }
}

function good<T extends { ok: boolean }>(verdict: T): Extract<T, { ok: true }> {
  if (!verdict.ok) throw new Error(JSON.stringify(verdict))
  return verdict as Extract<T, { ok: true }>
}

test('goal: an empty file gets the upstream, the price, and the model for instances instead of one that nothing serves', () => {
  const { text, config, changes } = good(withUpstream(sourceOf(''), rack))
  expect(text).toBe(
    `[[inference.upstreams]]
name = "rack-7"
url = "https://10.0.0.5:8000/v1"
engine = "vllm"
models = ["llama-70b"]
context_tokens = 131072
ca_file = "/etc/strongroom/ca.pem"

[[inference.prices]]
model = "llama-70b"
prompt_usd_per_million = "0.50"
completion_usd_per_million = "1.50"

[instances]
inference_models = ["llama-70b"]
`,
  )
  expect(config.instances.inference_models).toEqual(['llama-70b'])
  expect(changes).toHaveLength(3)
})

test('goal: a file with comments and another upstream keeps them, and instances keep their first model', () => {
  const text = `# mine
[inference.worker]
model_disk = "d" # of ours
model = "small"

[[inference.upstreams]] # old
name = "old"
url = "http://10.0.0.1/v1"
models = ["big"]

[instances]
inference_models = ["small", "gone"] # offered
`
  const edited = good(withUpstream(sourceOf(text), { ...rack, price: null, caFile: null, contextTokens: null }))
  for (const comment of ['# mine', '# of ours', '# old', '# offered']) expect(edited.text).toContain(comment)
  expect(edited.config.inference.upstreams.map(({ name }) => name)).toEqual(['old', 'rack-7'])
  expect(edited.config.inference.upstreams[1]?.context_tokens).toBe(0)
  expect(edited.config.instances.inference_models).toEqual(['small', 'llama-70b'])
  const removed = good(withoutUpstream({ ...edited, file: 'f' }, 'rack-7'))
  expect(removed.config.inference.upstreams.map(({ name }) => name)).toEqual(['old'])
  expect(removed.config.instances.inference_models).toEqual(['small'])
})

test('goal: an embedding model is marked, and not offered to instances', () => {
  const { config } = good(withUpstream(sourceOf(''), { ...rack, isEmbedding: true }))
  expect(config.inference.upstreams[0]?.embedding_models).toEqual(['llama-70b'])
  expect(config.instances.inference_models).toEqual(['strongroom-tiny'])
})

test('goal: what the whole file contradicts, or a form that no program changes, is refused with its field', () => {
  const twice = good(withUpstream(sourceOf(''), rack))
  const again = withUpstream({ ...twice, file: 'f' }, { ...rack, price: null })
  expect(again).toMatchObject({ ok: false, problems: [{ field: 'inference.upstreams.1.name' }] })
  const inline = withUpstream(sourceOf('inference = { vcpus = 2 }\n'), rack)
  expect(inline.ok).toBe(false)
  const fallback = `${twice.text}\n[[inference.fallbacks]]\nmodel = "llama-70b"\nfallback = "other"\n[[inference.upstreams]]\nname = "b"\nurl = "http://10.0.0.2/v1"\nmodels = ["other"]\n`
  expect(withoutUpstream(sourceOf(fallback), 'rack-7')).toMatchObject({
    ok: false,
    problems: [{ field: 'inference.fallbacks.0' }],
  })
})

test('goal: names are made of any URL, allowed, and never used twice', () => {
  const rows: [url: string, taken: string[], name: string][] = [
    ['https://llm.example/v1', [], 'llm'],
    ['http://10.0.0.5:8000/v1', [], '10-0-0-5'],
    ['http://10.0.0.5:8000/v1', ['10-0-0-5', '10-0-0-5-2'], '10-0-0-5-3'],
    ['http://[fd00::1]:80/v1', [], 'fd00-1'],
    ['https://built-in.example/v1', [], 'built-in-2'],
    [`https://${'x'.repeat(63)}.example/v1`, [], 'x'.repeat(59)],
  ]
  for (const [url, taken, name] of rows) expect([url, upstreamName(url, taken)]).toEqual([url, name])
})
