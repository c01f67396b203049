// The gateway's OpenAPI document: committed, whole, true to the routes and statuses.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { isEnclave } from '../../../../scripts/rigs/gateway/test-gateway.ts'
import { GatewayError } from '../../../../src/contract/http/inference.ts'
import { routeFaults } from '../../../../src/http/openapi.ts'
import { GATEWAY_ROUTES } from '../../../../src/inference/gateway/gateway.ts'
import { GatewayProblem } from '../../../../src/inference/gateway/openapi/gateway-problem.ts'
import { inferenceOpenapiDocument } from '../../../../src/inference/gateway/openapi/openapi.ts'

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }
const document = JSON.parse(JSON.stringify(inferenceOpenapiDocument()))

// Goal: the document that the gateway serves is what the schemas say, to the letter.
test('no drift', async () => {
  const committed = await Bun.file(
    new URL('../../../../src/inference/gateway/openapi/openapi.json', import.meta.url),
  ).text()
  expect(committed).toBe(`${JSON.stringify(inferenceOpenapiDocument(), null, 2)}\n`)
})

// Goal: every reference leads somewhere, and every example of an error is an error of the contract.
test('references and examples', () => {
  const visit = (node: Json): void => {
    if (typeof node !== 'object' || node === null) return
    for (const value of Object.values(node)) visit(value)
    if (Array.isArray(node)) return
    if (typeof node.$ref === 'string') {
      const parts = node.$ref.replace('#/', '').split('/')
      expect([
        node.$ref,
        parts.reduce((at: Json, part) => (at as { [key: string]: Json })[part] ?? null, document) !== null,
      ]).toEqual([node.$ref, true])
    }
  }
  visit(document)
  for (const response of Object.values(document.components.responses as Record<string, { content: Json }>)) {
    for (const [type, { example }] of Object.entries(response.content as Record<string, { example: Json }>)) {
      const schema = type === 'application/problem+json' ? GatewayProblem : GatewayError
      expect([type, Value.Check(schema, example)]).toEqual([type, true])
    }
  }
})

// Goal: document and service have the same routes, and each asks for a key exactly where the document says so.
test('routes', async () => {
  expect(routeFaults(inferenceOpenapiDocument(), GATEWAY_ROUTES)).toEqual([])
  // A gateway in a VM has one of its own.
  const host = isEnclave ? {} : { host: { workload: '{}' } }
  await using gateway = await startGateway([target('http://127.0.0.1:9/v1')], host)
  for (const [path, item] of Object.entries(document.paths as Record<string, Record<string, { security?: [] }>>)) {
    for (const [method, operation] of Object.entries(item)) {
      const answer = await fetch(gateway.url + path, { method: method.toUpperCase() })
      expect([path, answer.status === 401]).toEqual([path, operation.security === undefined])
      expect([404, 405]).not.toContain(answer.status)
    }
  }
})

// Goal: bodies that accept further fields say that the gateway forwards those of its list alone.
test.each(['ChatCompletionRequest', 'CompletionRequest'])('unlisted fields of %s', name => {
  const { description } = document.components.schemas[name]
  expect(description).not.toContain('forwarded unchanged')
  expect(description).toContain('x-strongroom-ignored')
})
