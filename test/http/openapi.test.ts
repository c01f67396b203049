// The builder of OpenAPI documents: what becomes of tables and schemas. The services' documents have tests of their own.

import { expect, test } from 'bun:test'
import { Type } from '@sinclair/typebox'
import { jsonContent, ref, toJsonSchema, toOpenApi } from '../../src/http/openapi.ts'

// Goal: operations of one path stand together, failures in the order of their status, and only what a row says is in it.
test('tables become a document', () => {
  const ok = { status: 200, description: 'Fine.', headers: { 'X-Id': 'Id' }, content: jsonContent({ type: 'object' }) }
  const common = { path: '/a', summary: 's', body: null, success: ok } as const
  const { paths, components } = toOpenApi({
    info: { title: 't', version: '1', summary: 's', description: 'd' },
    bearer: { format: 'x', description: 'A key.' },
    operations: [
      { ...common, method: 'get', id: 'getA', isPublic: true, parameters: [], failures: ['Late', 'Bad'] },
      { ...common, method: 'post', id: 'makeA', isPublic: false, parameters: ['Which'], failures: ['Bad'] },
    ],
    schemas: { Problem: { type: 'object' } },
    parameters: { Which: { name: 'which', in: 'query' } },
    headers: { Id: { schema: { type: 'string' } }, Wait: { schema: { type: 'integer' } } },
    failures: {
      Bad: { status: 400, description: 'Bad.', error: 'bad' },
      Late: { status: 408, description: 'Late.', headers: { 'Retry-After': 'Wait' }, error: 'late' },
    },
    failureDocument: { schema: 'Problem', headers: { 'X-Id': 'Id' }, toExample: error => ({ error }) },
  })
  const success = { description: 'Fine.', headers: { 'X-Id': ref('headers', 'Id') }, content: ok.content }
  expect(paths).toEqual({
    '/a': {
      get: {
        operationId: 'getA',
        summary: 's',
        security: [],
        responses: { 200: success, 400: ref('responses', 'Bad'), 408: ref('responses', 'Late') },
      },
      post: {
        operationId: 'makeA',
        summary: 's',
        parameters: [ref('parameters', 'Which')],
        responses: { 200: success, 400: ref('responses', 'Bad') },
      },
    },
  })
  expect(components).toMatchObject({
    responses: {
      Late: {
        headers: { 'X-Id': ref('headers', 'Id'), 'Retry-After': ref('headers', 'Wait') },
        content: jsonContent(ref('schemas', 'Problem'), { error: 'late' }),
      },
    },
  })
})

// Goal: schemas come out as plain JSON Schema: named ones as references, unions of constants as enums, other unions as they are.
test('schemas become plain JSON Schema', () => {
  const Color = Type.Union([Type.Literal('red'), Type.Literal('blue')], { description: 'A color.' })
  const Paint = Type.Object({ color: Color, coat: Type.Union([Type.Literal('matt'), Type.Null()]) })
  expect(toJsonSchema(Color)).toEqual({ description: 'A color.', type: 'string', enum: ['red', 'blue'] })
  expect(toJsonSchema(Paint, { Color })).toEqual({
    type: 'object',
    required: ['color', 'coat'],
    properties: { color: ref('schemas', 'Color'), coat: { type: ['string', 'null'], enum: ['matt', null] } },
  })
  const either = { anyOf: [{ type: 'string' }, { type: 'integer' }] }
  expect(toJsonSchema(Type.Union([Type.String(), Type.Integer()]))).toEqual(either)
})
