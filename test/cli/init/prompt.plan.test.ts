// Goal: the prompt from the instance is sent as the agent does, whatever the name of the model, and no error
// passes for an answer.

import { expect, test } from 'bun:test'
import { promptCommand, promptedModel, promptVerdict } from '../../../src/cli/init/prompt.plan.ts'
import { parseConfig } from '../../../src/config/parse.ts'

test('goal: a shell runs it as it is meant, also with quotes in the name of the model', async () => {
  const seen: { path: string; key: string | null; body: { model: string } }[] = []
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: async request => {
      const body = (await request.json()) as { model: string }
      seen.push({ path: new URL(request.url).pathname, key: request.headers.get('authorization'), body })
      return Response.json({ choices: [{ message: { content: 'OK' } }], usage: { completion_tokens: 2 } })
    },
  })
  const model = `a'b"c $(false) \\`
  const env = {
    PATH: process.env.PATH ?? '',
    OPENAI_API_KEY: 'gw_x',
    OPENAI_BASE_URL: `http://127.0.0.1:${server.port}/v1`,
  }
  const shell = Bun.spawn(['sh', '-c', promptCommand(model)], { env, stdout: 'pipe' })
  const output = await shell.stdout.text()
  await server.stop(true)
  expect(promptVerdict(output)).toEqual({ ok: true, tokens: 2 })
  expect(seen).toMatchObject([{ path: '/v1/chat/completions', key: 'Bearer gw_x', body: { model } }])
})

test('goal: an error document, a page and nothing are no answers, and name the cause', () => {
  const refused = JSON.stringify({ error: { message: 'Your prompt was not sent', code: 'x' } })
  const rows: [output: string, why: string][] = [
    [refused, 'Your prompt was not sent'],
    ['<html>', '<html>'],
    ['', 'no output'],
    ['{"choices":[]}', '{"choices":[]}'],
    ['null', 'null'],
  ]
  for (const [output, why] of rows) expect([output, promptVerdict(output)]).toEqual([output, { ok: false, why }])
  expect(promptVerdict('{"choices":[1]}')).toEqual({ ok: true, tokens: null })
})

test('goal: a prompt is tried only where the gateway of this host serves the model of new instances', () => {
  const model = (text: string) => {
    const parsed = parseConfig(text, 'f')
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems))
    return promptedModel(parsed.config)
  }
  const upstream = '[[inference.upstreams]]\nname = "a"\nurl = "http://10.0.0.1/v1"\nmodels = ["m"]\n'
  const offered = '[instances]\ninference_models = ["m"]\n'
  expect(model('')).toBeNull()
  expect(model(upstream)).toBeNull()
  expect(model(`${upstream}${offered}`)).toBe('m')
  expect(model(`${upstream}${offered}[listen]\ninference = ""\n`)).toBeNull()
  expect(model(`${upstream}${offered}inference_base_url = "https://elsewhere.example/v1"\n`)).toBeNull()
})
