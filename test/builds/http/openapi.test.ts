// The OpenAPI document of service C: committed, whole, true to the routes.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { startBuilds } from '../../../scripts/rigs/build/builds-service.ts'
import { buildsOpenapiDocument } from '../../../src/builds/http/openapi.ts'
import { BUILD_ROUTES } from '../../../src/builds/http/routes.ts'
import { BuildProblem, BuildRecord } from '../../../src/contract/http/build-api.ts'
import { routeFaults } from '../../../src/http/openapi.ts'
import { LOG_OPERATIONS } from '../../../src/transparency/operations.ts'

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }
const document = JSON.parse(JSON.stringify(buildsOpenapiDocument()))
type Operation = { security?: []; responses: { 200?: { content?: { 'application/json'?: { example?: Json } } } } }

// Goal: the committed document is what the schemas say, to the letter.
test('no drift', async () => {
  const golden = await Bun.file(new URL('../../golden/openapi-builds.json', import.meta.url)).text()
  expect(golden).toBe(`${JSON.stringify(buildsOpenapiDocument(), null, 2)}\n`)
})

// Goal: every reference leads somewhere, and every example is what the contract says.
test('references and examples', () => {
  const visit = (node: Json): void => {
    if (typeof node !== 'object' || node === null) return
    for (const value of Object.values(node)) visit(value)
    if (Array.isArray(node) || typeof node.$ref !== 'string') return
    const parts = node.$ref.replace('#/', '').split('/')
    const target = parts.reduce((at: Json, part) => (at as { [key: string]: Json })[part] ?? null, document)
    expect([node.$ref, target !== null]).toEqual([node.$ref, true])
  }
  visit(document)
  for (const response of Object.values(document.components.responses as Record<string, { content: Json }>)) {
    const { example } = (response.content as { 'application/json': { example: unknown } })['application/json']
    expect(Value.Check(BuildProblem, example)).toBe(true)
  }
  const record = document.paths['/build/{id}'].get.responses[200].content['application/json'].example
  expect(Value.Check(BuildRecord, record)).toBe(true)
})

// Goal: document and service have the same routes, and each asks for a key exactly where the document says so.
test('routes', async () => {
  expect(routeFaults(buildsOpenapiDocument(), [...BUILD_ROUTES, ...Object.values(LOG_OPERATIONS)])).toEqual([])
  await using rig = await startBuilds({ starts: false })
  for (const [path, item] of Object.entries(document.paths as Record<string, Record<string, Operation>>)) {
    for (const [method, operation] of Object.entries(item)) {
      const url = path.replace(/\{[a-z]+\}/g, '00000000-0000-0000-0000-000000000000')
      const { status } = await rig.send(method.toUpperCase(), url, { key: null })
      expect([path, method, status === 401]).toEqual([path, method, operation.security === undefined])
      expect([path, method, status === 405]).toEqual([path, method, false])
    }
  }
})
