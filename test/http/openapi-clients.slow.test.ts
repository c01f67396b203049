// Goal: generators that people use make clients of the three documents that compile in strict mode, want no field that
// may be left out, and have an address to replace.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { compile, generateClient } from '../rigs/openapi-clients/generate.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-openapi-clients-'))
afterAll(() => rmSync(dir, { recursive: true }))

const repo = join(import.meta.dir, '../..')

/** A program for each document: the least that a person writes by it, for types and for the client. */
const SERVICES = [
  {
    name: 'instances',
    document: 'test/golden/openapi.json',
    address: 'https://instances.example:8441',
    required: { schema: 'CreateInstance', operation: 'createInstance', field: 'public_key' },
    types: `import type { components } from './schema'
export const body: components['schemas']['CreateInstance'] = { public_key: 'ssh-ed25519 AAAA' }
`,
    client: `import { createInstance } from './client/index'
export const made = await createInstance({ body: { public_key: 'ssh-ed25519 AAAA' } })
export const name: string | undefined = made.data?.data.name
`,
  },
  {
    name: 'gateway',
    document: 'src/inference/gateway/openapi/openapi.json',
    address: 'https://gateway.example:8442',
    required: { schema: 'ChatCompletionRequest', operation: 'createChatCompletion', field: 'model' },
    types: `import type { components } from './schema'
export const chat: components['schemas']['ChatCompletionRequest'] = {
  model: 'tiny',
  messages: [{ role: 'user', content: 'Hello' }],
  temperature: 0,
  response_format: { type: 'json_schema', json_schema: { name: 'a', description: 'b', schema: { type: 'object' } } },
  tools: [{ type: 'function', name: 'f', parameters: { type: 'object' } }],
}
export const message: components['schemas']['MessagesRequest'] = {
  model: 'tiny',
  max_tokens: 16,
  messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
  metadata: { user_id: 'ada', tenant: 'b' },
}
export const response: components['schemas']['ResponsesRequest'] = {
  model: 'tiny',
  input: 'Hello',
  safety_identifier: 'ada',
}
`,
    client: `import { createChatCompletion, createMessage, createResponse, retrieveUsage } from './client/index'
await createChatCompletion({
  body: { model: 'tiny', messages: [{ role: 'user', content: 'Hello' }], temperature: 0, tools: [
    { type: 'function', function: { name: 'f', strict: true, parameters: { type: 'object' } } },
  ] },
})
const { data } = await createResponse({ body: {
  model: 'tiny', input: [{ role: 'user', content: 'Hello' }], safety_identifier: 'ada',
} })
await createMessage({ body: {
  model: 'tiny', max_tokens: 1, messages: [{ role: 'user', content: 'Hello' }], metadata: { user_id: 'ada' },
} })
export const id: unknown = data
await retrieveUsage()
`,
  },
  {
    name: 'builds',
    document: 'test/golden/openapi-builds.json',
    address: 'https://builds.example:8443',
    required: { schema: 'BuildRequest', operation: 'submitBuild', field: 'nonce' },
    types: `import type { components } from './schema'
export const body: components['schemas']['BuildRequest'] = { nonce: '00', repo_url: 'https://git.example/tool.git' }
`,
    client: `import { submitBuild } from './client/index'
await submitBuild({ body: { nonce: '00', repo_url: 'https://git.example/tool.git' } })
`,
  },
] as const

// Goal: what may be left out may be left out there, too, and what is required is.
describe.each(SERVICES)('$name', ({ name, document, address, required, types, client }) => {
  const path = join(repo, document)
  const { schema, operation, field } = required
  const folder = (generator: string) => {
    const made = join(dir, name, generator)
    mkdirSync(made, { recursive: true })
    return made
  }
  const expectLacking = (errors: string) => {
    expect(errors.match(/^\S+\.ts(?=\()/gm)).toEqual([expect.stringMatching(/wrong\.ts$/)])
    expect(errors).toContain(`Property '${field}' is missing`)
  }

  test('types by openapi-typescript', async () => {
    const made = folder('types')
    await generateClient('openapi-typescript', path, made)
    writeFileSync(join(made, 'program.ts'), types)
    expect(await compile(made)).toBe('')
    const wrong = `import type { components } from './schema'\nexport const a: components['schemas']['${schema}'] = {}\n`
    writeFileSync(join(made, 'wrong.ts'), wrong)
    expectLacking(await compile(made))
  })

  test('a client by @hey-api/openapi-ts, with an address', async () => {
    const made = folder('functions')
    await generateClient('@hey-api/openapi-ts', path, join(made, 'client'))
    writeFileSync(join(made, 'program.ts'), client)
    expect(await compile(made)).toBe('')
    expect(await Bun.file(join(made, 'client/client.gen.ts')).text()).toContain(`baseUrl: '${address}'`)
    const wrong = `import { ${operation} } from './client/index'\nawait ${operation}({ body: {} })\nexport {}\n`
    writeFileSync(join(made, 'wrong.ts'), wrong)
    expectLacking(await compile(made))
  })
})
