// Goal: a build VM takes no authority and no mirror that the client's request does not name, and its receipt says which
// origins a fetch had.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { orderProblem, orderWords } from '../../src/builder/order.plan.ts'
import { type BuildOrder, orderText } from '../../src/contract/vm/build-order.ts'

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
const ca = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
const mirror = 'sparse+https://mirror.example/index/'
const proxy = 'http://10.0.0.1:8444'
const none = { caSha256: null, cratesMirror: null }

const orderOf = (
  accepts: BuildOrder['accepts'],
  fetch: Partial<NonNullable<BuildOrder['fetch']>> | null,
): BuildOrder => ({
  ...{
    jobId: '4f9d2c1e-0000-4000-8000-000000000001',
    nonce: 'ff'.repeat(16),
    projectDir: null,
    toolchain: null,
    options: null,
    waivers: [],
  },
  source: { kind: 'git', url: 'https://git.example/a.git', ref: null },
  ...{ reproduce: false, accepts, builderId: 'https://builder.example', imageSummary: null },
  limits: {
    ...{ sourceBytes: 1, sourceEntries: 1, fetchSeconds: 1, fetchBytes: 1, buildSeconds: 1, memoryBytes: 1 },
    ...{ pids: 1, diskBytes: 1, logBytes: 1, artifactBytes: 1, artifactCount: 1 },
  },
  fetch: fetch === null ? null : { proxy, cratesMirror: null, ca: null, ...fetch },
})

test('goal: an order that fetches nothing, or from public origins alone, is taken, whatever the request accepts', () => {
  for (const accepts of [none, { caSha256: sha256(ca), cratesMirror: mirror }]) {
    expect(orderProblem(orderOf(accepts, null))).toBeNull()
    expect(orderProblem(orderOf(accepts, {}))).toBeNull()
  }
})

test('goal: authorities are those whose digest the request carries, to the byte', () => {
  const accepts = { caSha256: sha256(ca), cratesMirror: null }
  expect(orderProblem(orderOf(accepts, { ca }))).toBeNull()
  const words = 'build.order.fetch.ca: authorities whose SHA-256 the request does not carry as fetch_ca_sha256'
  expect(orderProblem(orderOf(accepts, { ca: `${ca}\n` }))).toBe(words)
  expect(orderProblem(orderOf(none, { ca }))).toBe(words)
  expect(orderProblem(orderOf({ ...accepts, caSha256: accepts.caSha256.toUpperCase() }, { ca }))).toBe(words)
})

test('goal: a mirror is the one that the request names', () => {
  const accepts = { caSha256: null, cratesMirror: mirror }
  expect(orderProblem(orderOf(accepts, { cratesMirror: mirror }))).toBeNull()
  const words = 'build.order.fetch.cratesMirror: a mirror that the request does not name as crates_mirror'
  expect(orderProblem(orderOf(accepts, { cratesMirror: `${mirror}x` }))).toBe(words)
  expect(orderProblem(orderOf(none, { cratesMirror: mirror }))).toBe(words)
  expect(orderProblem(orderOf(none, { cratesMirror: mirror, ca }))).toStartWith('build.order.fetch.ca: ')
})

test('goal: options without a word are refused, for their member alone would choose the toolchain', () => {
  const cargo = { package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null }
  const words = 'build.order.options: must be null when no option is set'
  const problemOf = (options: BuildOrder['options']) => orderProblem({ ...orderOf(none, null), options })
  expect(problemOf({ cargo })).toBe(words)
  expect(problemOf({ nix: { output: null, caches: [] } })).toBe(words)
  expect(problemOf({ cargo: { ...cargo, noDefaultFeatures: true } })).toBeNull()
  expect(problemOf({ nix: { output: 'packages.x86_64-linux.a', caches: [] } })).toBeNull()
  expect(problemOf({ go: { proxy: 'https://go.example' } })).toBeNull()
})

test('goal: the receipt has the digest of the whole order, and of the authorities as they were given', () => {
  const hex = (bytes: Uint8Array | null) => (bytes === null ? null : Buffer.from(bytes).toString('hex'))
  const order = orderOf({ caSha256: sha256(ca), cratesMirror: mirror }, { ca, cratesMirror: mirror })
  const words = orderWords(order)
  expect({
    ...words,
    orderDigest: hex(words.orderDigest),
    fetchAuthoritiesDigest: hex(words.fetchAuthoritiesDigest),
  }).toEqual({
    orderDigest: sha256(orderText(order)),
    fetchProxy: proxy,
    fetchMirror: mirror,
    fetchAuthoritiesDigest: sha256(ca),
  })
  expect(orderWords(orderOf(none, null))).toMatchObject({
    ...{ fetchProxy: null, fetchMirror: null, fetchAuthoritiesDigest: null },
  })
  expect(orderWords(orderOf(none, {}))).toMatchObject({
    fetchProxy: proxy,
    fetchMirror: null,
    fetchAuthoritiesDigest: null,
  })
})
