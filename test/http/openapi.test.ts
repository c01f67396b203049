// The builder of OpenAPI documents, from tables and schemas. The services' documents have tests of their own.

import { expect, test } from 'bun:test'
import { Type } from '@sinclair/typebox'
import {
  type ApiOperation,
  jsonContent,
  parameter,
  problemExample,
  ref,
  routeFaults,
  toJsonSchema,
  toOpenApi,
} from '../../src/http/openapi.ts'
import { joined, type Operation } from '../../src/http/operations.ts'

const OPERATIONS = {
  getA: { method: 'GET', path: '/a', isPublic: true },
  makeA: { method: 'POST', path: '/a', isPublic: false },
} as const satisfies Record<string, Operation>

// Goal: operations of a path stand together, failures in the order of their status, and only what the tables say.
test('tables become a document', () => {
  const ok = {
    status: 200,
    description: 'Fine.',
    headers: { 'X-Id': 'Id' },
    content: jsonContent({ type: 'object' }),
  } as const
  const row = { summary: 's', success: ok } as const
  const document = toOpenApi({
    info: { title: 't', version: '1', summary: 's', description: 'd' },
    exampleAddress: 'https://t.example',
    bearer: { format: 'x', description: 'A key.' },
    operations: joined<'getA' | 'makeA', ApiOperation<'Which', 'Id' | 'Wait', 'Bad' | 'Late'>>(OPERATIONS, {
      getA: { ...row, failures: ['Late', 'Bad'] },
      makeA: { ...row, parameters: ['Which'], failures: ['Bad'] },
    }),
    schemas: { Problem: { type: 'object' } },
    parameters: { Which: parameter('query', 'which', 'd') },
    headers: { Id: { schema: { type: 'string' } }, Wait: { schema: { type: 'integer' } } },
    failures: {
      Bad: { fault: 'invalid_request', description: 'Bad.', message: 'bad' },
      Late: {
        fault: 'body_timeout',
        description: 'Late.',
        headers: { 'Retry-After': 'Wait' },
        message: 'late',
        param: 'p',
      },
    },
    failureDocument: {
      schema: 'Problem',
      headers: { 'X-Id': 'Id' },
      toExample: failure => ({ error: problemExample(failure) }),
    },
  })
  const { paths, components } = document
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
        content: jsonContent(ref('schemas', 'Problem'), {
          error: { code: 'invalid_request', message: 'late', param: 'p' },
        }),
      },
    },
  })
  expect(routeFaults(document, Object.values(OPERATIONS))).toEqual([])
  const { getA, makeA } = OPERATIONS
  expect(routeFaults(document, [getA])).toEqual(['POST /a has no route'])
  expect(routeFaults(document, [getA, makeA, { method: 'DELETE', path: '/a' }])).toEqual([
    'DELETE /a is not documented',
  ])
})

// Goal: tables that do not name the same operations are not joined, whichever of them has more.
test('an operation without a row, and a row without an operation', () => {
  expect(joined(OPERATIONS, { makeA: 2, getA: 1 })).toEqual([
    { ...OPERATIONS.makeA, id: 'makeA', row: 2 },
    { ...OPERATIONS.getA, id: 'getA', row: 1 },
  ])
  const { getA } = OPERATIONS
  const rows: { getA: number } = { getA: 1, ...{ makeA: 2 } }
  expect(() => joined({ getA }, rows)).toThrow('row makeA belongs to an operation')
  const operations: { getA: Operation } = OPERATIONS
  expect(() => joined(operations, { getA: 1 })).toThrow('operation makeA has a row in each table')
})

// Goal: schemas become plain JSON Schema: named schemas references, unions of constants enums, other unions unchanged.
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
