// Goal: kind, models and context size are read from what each kind of server reports, and nothing else is believed.

import { expect, test } from 'bun:test'
import { infoIn, modelListIn, propsContextIn } from '../../../src/cli/upstream/engine.plan.ts'

test('goal: lists of vLLM, SGLang, llama-server, OpenRouter and OpenAI', () => {
  const rows: [entry: object, engine: string | null, contextTokens: number | null][] = [
    [{ owned_by: 'vllm', max_model_len: 131_072 }, 'vllm', 131_072],
    [{ owned_by: 'sglang', max_model_len: 32_768 }, 'sglang', 32_768],
    [{ owned_by: 'llamacpp', meta: { n_ctx_train: 8192 } }, 'llama-server', null],
    [{ context_length: 200_000 }, null, 200_000],
    [{ owned_by: 'openai' }, 'openai', null],
    [{ owned_by: 'constructor', max_model_len: -1 }, null, null],
    [{ max_model_len: '4096' }, null, null],
    [{ max_model_len: 1e12 }, null, null],
  ]
  for (const [entry, engine, contextTokens] of rows) {
    expect(modelListIn({ object: 'list', data: [{ id: 'm', ...entry }] })).toEqual({
      engine: engine as never,
      models: [{ id: 'm', contextTokens }],
    })
  }
})

test('goal: what is no list is none, and entries without an id are left out', () => {
  for (const value of [null, [], 'x', {}, { data: {} }]) expect(modelListIn(value)).toBeNull()
  expect(modelListIn({ data: [null, { id: 1 }, { id: '' }, { id: 'm' }] })?.models).toEqual([
    { id: 'm', contextTokens: null },
  ])
})

test('goal: the context of a slot, and of an embedding server', () => {
  expect(propsContextIn({ default_generation_settings: { n_ctx: 4096 } })).toBe(4096)
  for (const value of [null, {}, { default_generation_settings: null }]) expect(propsContextIn(value)).toBeNull()
  expect(infoIn({ model_id: 'bge', max_input_length: 512 })).toEqual({ id: 'bge', contextTokens: 512 })
  expect(infoIn({ model_sha: 'x' })).toBeNull()
})
