// The OpenAPI document: in step with the schemas, whole, true to the routes, and served.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { openLogBench } from '../../../scripts/rigs/transparency.ts'
import { statusOf } from '../../../src/base/fault.ts'
import {
  CreateInstance,
  InstanceCreated,
  InstanceList,
  InstanceRecord,
  UsageSummary,
} from '../../../src/contract/http/instance.ts'
import { FailureEnvelope, SuccessEnvelope } from '../../../src/contract/http/problem.ts'
import { RestoreBegun, Snapshot, SnapshotAttempt, SnapshotList } from '../../../src/contract/http/snapshot.ts'
import { routeFaults } from '../../../src/http/openapi.ts'
import { openapiDocument } from '../../../src/instances/http/openapi.ts'
import { INSTANCE_ROUTES } from '../../../src/instances/http/routes.ts'
import { parsePublicKey } from '../../../src/instances/public-key.codec.ts'
import { LOG_OPERATIONS } from '../../../src/transparency/operations.ts'
import { logRoutes } from '../../../src/transparency/routes.ts'

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }
const document: Json = JSON.parse(JSON.stringify(openapiDocument()))

function at(pointer: string): Json | undefined {
  const parts = pointer.replace(/^#\//, '').split('/')
  return parts.reduce<Json | undefined>((node, part) => {
    if (typeof node !== 'object' || node === null || Array.isArray(node)) return undefined
    return node[part.replaceAll('~1', '/').replaceAll('~0', '~')]
  }, document)
}

/** Every object of the document with where it is. */
function* objects(node: Json, path: string): Generator<[path: string, node: { [key: string]: Json }]> {
  if (typeof node !== 'object' || node === null) return
  if (!Array.isArray(node)) yield [path, node]
  for (const [key, value] of Object.entries(node)) yield* objects(value, `${path}/${key.replaceAll('/', '~1')}`)
}

function operations(): { id: string; method: string; path: string; node: { [key: string]: Json } }[] {
  return Object.entries(at('#/paths') ?? {}).flatMap(([path, item]) =>
    Object.entries(item as { [method: string]: { [key: string]: Json } }).map(([method, node]) => ({
      id: String(node.operationId),
      method,
      path,
      node,
    })),
  )
}

// Goal: the committed document is what the schemas say, to the letter.
test('no drift', async () => {
  const golden = await Bun.file(new URL('../../golden/openapi.json', import.meta.url)).text()
  expect(golden).toBe(`${JSON.stringify(openapiDocument(), null, 2)}\n`)
})

// Goal: the script that guards against drift passes on the committed document, and refuses anything but its two modes.
test('the script', () => {
  const run = (...args: string[]) =>
    Bun.spawnSync(['bun', new URL('../../../scripts/openapi.ts', import.meta.url).pathname, ...args]).exitCode
  expect([run('--check'), run(), run('--check', 'x')]).toEqual([0, 2, 2])
})

// Goal: every reference leads somewhere, and every component is used.
test('references', () => {
  const refs = [...objects(document, '#')].flatMap(([, node]) => (typeof node.$ref === 'string' ? [node.$ref] : []))
  expect(refs.length).toBeGreaterThan(20)
  expect(refs.filter(ref => at(ref) === undefined)).toEqual([])
  for (const kind of ['schemas', 'parameters', 'headers', 'responses']) {
    const names = Object.keys(at(`#/components/${kind}`) ?? {}).map(name => `#/components/${kind}/${name}`)
    expect(names.filter(name => !refs.includes(name))).toEqual([])
  }
})

// Goal: the document has the form of OpenAPI 3.1: required and known members, unique ids, declared path parameters.
test('well-formed 3.1', () => {
  expect(at('#/openapi')).toBe('3.1.0')
  expect(Object.keys(document as object)).toEqual(['openapi', 'info', 'servers', 'security', 'paths', 'components'])
  expect(Object.keys(at('#/info') as object)).toEqual(['title', 'version', 'summary', 'description'])
  const all = operations()
  expect(new Set(all.map(({ id }) => id)).size).toBe(all.length)
  const known = ['operationId', 'summary', 'description', 'security', 'parameters', 'requestBody', 'responses']
  for (const { path, node } of all) {
    expect(Object.keys(node).filter(key => !known.includes(key))).toEqual([])
    const parameters = (node.parameters ?? []) as { $ref: string }[]
    const inPath = parameters
      .map(({ $ref }) => at($ref) as { in: string; name: string })
      .filter(parameter => parameter.in === 'path')
    expect(inPath.map(({ name }) => name)).toEqual([...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name))
    for (const [status, response] of Object.entries(node.responses as { [status: string]: { [key: string]: Json } })) {
      expect(status).toMatch(/^[2-5]\d\d$/)
      const whole = typeof response.$ref === 'string' ? at(response.$ref) : response
      const { description, content } = whole as { description: Json; content: { [type: string]: { schema: Json } } }
      const isOfLog = path.startsWith('/log/') && status === '200'
      const isBytes =
        (isOfLog && path.includes('tile')) || (node.operationId === 'retrieveSnapshot' && status === '200')
      const type = isBytes ? 'application/octet-stream' : isOfLog ? 'text/plain' : 'application/json'
      expect([typeof description, Object.keys(content), typeof content[type]?.schema]).toEqual([
        'string',
        [type],
        'object',
      ])
    }
  }
  // 3.0 leftovers that 3.1 does not know.
  for (const [path, node] of objects(document, '#')) {
    if (!path.includes('/example')) expect(Object.hasOwn(node, 'nullable')).toBe(false)
  }
})

// Goal: the document and the server have the same operations, and the same ones need a key.
test('operations are the routes', async () => {
  using bench = openLogBench()
  bench.log.append(
    ...Array.from({ length: 257 }, (_, n) => ({ kind: 'workload', sha256: n.toString(16).padStart(64, '0') }) as const),
  )
  await using appliance = await startAppliance({ others: logRoutes({ log: bench.log, admit: () => {} }) })
  const leaf = Buffer.from(bench.log.entries(0, 1)[0]?.leaf ?? '').toString('hex')
  const places = { name: 'abcd1234', number: '1', level: '0', a: '000', leaf }
  // The other forms of a tile's path are those of test/transparency/routes.slow.test.ts.
  const known = (path: string) => !path.includes('{b}')
  expect(routeFaults(openapiDocument(), [...INSTANCE_ROUTES, ...Object.values(LOG_OPERATIONS)])).toEqual([])
  for (const { method, path, node } of operations().filter(({ path }) => known(path))) {
    const at = path.replace(/\{(\w+)\}/g, (_, name: keyof typeof places) => places[name])
    const { status } = await fetch(`http://127.0.0.1:${appliance.port}${at}`, { method: method.toUpperCase() })
    expect([path, status]).toEqual([path, JSON.stringify(node.security) === '[]' ? 200 : 401])
  }
})

// Goal: statuses of documented failures are those of the fault table.
test('statuses agree with the faults', () => {
  const post = operations().find(({ id }) => id === 'createInstance')
  const statuses = (
    [
      'invalid_request',
      'unauthenticated',
      'forbidden',
      'method_not_allowed',
      'body_timeout',
      'conflict',
      'body_too_large',
      'rate_limited',
      'internal',
      'store.busy',
    ] as const
  ).map(statusOf)
  expect(Object.keys(post?.node.responses ?? {})).toEqual([202, ...statuses].map(String))
})

// Goal: every example in the document is valid by the schema that it stands beside.
test('examples', () => {
  const SCHEMAS = {
    createInstance: InstanceCreated,
    listInstances: InstanceList,
    retrieveInstance: InstanceRecord,
    deleteInstance: InstanceRecord,
    createSnapshot: SnapshotAttempt,
    listInstanceSnapshots: SnapshotList,
    deleteSnapshot: Snapshot,
    restoreSnapshot: RestoreBegun,
    listSnapshots: SnapshotList,
    retrieveUsage: UsageSummary,
  } as const
  for (const [id, schema] of Object.entries(SCHEMAS)) {
    const { node } = operations().find(operation => operation.id === id) ?? {}
    const [success] = Object.values(
      node?.responses as { [status: string]: { content: { 'application/json': { example: Json } } } },
    )
    const example = success?.content['application/json'].example
    expect([id, [...Value.Errors(SuccessEnvelope(schema), example)]]).toEqual([id, []])
  }
  const { example } = at('#/paths/~1v1~1instances/post/requestBody/content/application~1json') as {
    example: { public_key: string }
  }
  expect(Value.Check(CreateInstance, example)).toBe(true)
  expect(parsePublicKey(example.public_key)).toBe(example.public_key)
  for (const response of Object.values(
    at('#/components/responses') as { [name: string]: { content: { 'application/json': { example: Json } } } },
  )) {
    expect(Value.Check(FailureEnvelope, response.content['application/json'].example)).toBe(true)
  }
})

// Goal: anybody gets the committed document, with the headers of every answer and without an envelope.
test('served at /openapi.json', async () => {
  await using appliance = await startAppliance()
  const answer = await appliance.send('GET', '/openapi.json', { key: null })
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/json'])
  expect<Json>(answer.json as Json).toEqual(document)
  expect(answer.headers.get('x-request-id')).toMatch(/^req_/)
})
