// Settings of each client, for people and programs.

import { expect, test } from 'bun:test'
import { parse } from 'smol-toml'
import { clientSetups, setupText } from '../../../src/client/connect/client-setup.ts'

const origin = 'http://127.0.0.1:18442'
const setups = clientSetups(origin, 'llama-70b')
const of = (id: string) => setups.find(setup => setup.id === id)

// Goal: Anthropic's clients get the address without /v1, all others with it.
test('addresses', () => {
  expect(of('claude_code')?.env).toEqual({
    ANTHROPIC_BASE_URL: origin,
    ANTHROPIC_AUTH_TOKEN: 'KEY',
    ANTHROPIC_MODEL: 'llama-70b',
    ANTHROPIC_DEFAULT_HAIKU_MODEL: 'llama-70b',
  })
  expect(of('anthropic_sdk')?.env).toEqual({ ANTHROPIC_BASE_URL: origin, ANTHROPIC_API_KEY: 'KEY' })
  expect(of('openai_sdk')?.env).toEqual({ OPENAI_BASE_URL: `${origin}/v1`, OPENAI_API_KEY: 'KEY' })
  expect(parse(of('codex')?.file?.text ?? '')).toMatchObject({
    model: 'llama-70b',
    model_providers: { strongroom: { base_url: `${origin}/v1`, wire_api: 'responses' } },
  })
  expect(JSON.parse(of('opencode')?.file?.text ?? '')).toMatchObject({
    model: 'strongroom/llama-70b',
    provider: { strongroom: { options: { baseURL: `${origin}/v1` } } },
  })
  expect(of('cursor')).toMatchObject({ env: {}, file: null, note: expect.stringContaining('cannot reach') })
})

// Goal: a model's name comes from the gateway's operator: no character of it is code for the shell, TOML or JSON.
test('a hostile name of a model', () => {
  const model = `a'$(touch x)"\n[model_providers.evil]\\`
  const hostile = clientSetups(origin, model)
  const fileOf = (id: string) => hostile.find(setup => setup.id === id)?.file?.text ?? ''
  expect(Object.keys(parse(fileOf('codex')).model_providers ?? {})).toEqual(['strongroom'])
  expect(parse(fileOf('codex')).model).toBe(model)
  expect(Object.keys(JSON.parse(fileOf('opencode')).provider.strongroom.models)).toEqual([model])
  const line = setupText(hostile.filter(({ id }) => id === 'claude_code'))
  const { stdout } = Bun.spawnSync(['sh', '-c', `${line.slice(line.indexOf('\n'))}\nprintf %s "$ANTHROPIC_MODEL"`])
  expect(stdout.toString()).toBe(model)
})

// Goal: no character of a name moves a terminal's cursor, retitles its window or turns its text.
test('a name with escapes', () => {
  const text = setupText(clientSetups(origin, 'm\u001b[2K\u001b]0;owned\u0007\u009b31m\u202e'))
  expect(text).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/)
  expect(text).toContain('m\\x1b[2K')
})
