// Goal: whatever a host writes into an order is in the evidence, and what decides the result fails a verifier that did
// not ask for it.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { cargoRecord, nixRecord, orderOf, requestOf } from '../../../scripts/rigs/build/record.ts'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import type { BuildRecord } from '../../../src/attest/provenance/record.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { BuildOrder, orderText } from '../../../src/contract/vm/build-order.ts'
import { ORDER_FIELDS, type OrderRule } from '../../../src/verifier/build/order.ts'
import type { AskedRequest } from '../../../src/verifier/build/question.ts'
import { type BuildCase, badChecks, openBuildCase, reasonOf, withJson } from '../../rigs/build/case.ts'

let item: BuildCase
beforeAll(async () => {
  item = await openBuildCase()
})
afterAll(() => item.close())

type Schema = {
  readonly type?: string
  readonly anyOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
}

/** Paths of all leaves, through unions. */
function pathsOf(schema: Schema, at: readonly string[] = []): string[] {
  const below = (schema.anyOf ?? []).filter(branch => branch.type !== 'null').flatMap(branch => pathsOf(branch, at))
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => pathsOf(field, [...at, name]))
  return schema.anyOf === undefined && schema.properties === undefined ? [at.join('.')] : [...below, ...own]
}

const rules: Readonly<Record<string, OrderRule>> = ORDER_FIELDS
const mirror = 'sparse+https://mirror.example/index/'
const ca = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
const cache = { url: 'https://cache.example/a', publicKey: `c-1:${'A'.repeat(43)}=` }
const fetch = { proxy: 'http://10.0.0.1:8444', cratesMirror: mirror, ca }

const cargo = {
  ...{ package: 'cli', bin: 'tool', features: ['a'], noDefaultFeatures: true },
  ...{ profile: 'dist', target: 'x86_64-unknown-linux-gnu', rustMirror: 'https://rust.example' },
}

/**
 * Builds whose orders use every field between them: of a repository, of an archive that fetches by a mirror and an
 * authority, and with Go, npm and pnpm.
 */
const whole: Readonly<Record<'git' | 'archive' | 'go' | 'npm' | 'pnpm', BuildRecord>> = {
  git: { ...cargoRecord, request: { ...cargoRecord.request, projectDir: 'sub', options: { cargo } } },
  go: {
    ...cargoRecord,
    request: { ...cargoRecord.request, options: { go: { proxy: 'https://go.example' } } },
  },
  npm: {
    ...cargoRecord,
    request: { ...cargoRecord.request, options: { npm: { registry: 'https://npm.example' } } },
  },
  pnpm: {
    ...cargoRecord,
    request: { ...cargoRecord.request, options: { pnpm: { registry: 'https://npm.example' } } },
  },
  archive: {
    ...nixRecord,
    networkPolicy: 'fetch-phase-allow-list-then-none',
    request: {
      ...nixRecord.request,
      nonce: cargoRecord.request.nonce,
      reproduce: true,
      options: { nix: { output: 'packages.x86_64-linux.tool', caches: [cache] } },
      waivers: ['allow_lfs_pointers'],
      fetchCaSha256: toHex(sha256(utf8(ca))),
      cratesMirror: mirror,
    },
  },
}

const ordered = (kind: keyof typeof whole): BuildOrder => ({
  ...orderOf(whole[kind]),
  ...(kind === 'archive' ? { fetch } : {}),
})

/** A result of this order; the guest's documents say what the order says. */
async function resultOf(kind: keyof typeof whole, order: BuildOrder, asked: AskedRequest = requestOf(whole[kind])) {
  const { source, accepts } = order
  const record: BuildRecord = {
    ...whole[kind],
    jobId: order.jobId,
    builderId: order.builderId,
    imageSummary: order.imageSummary,
    networkPolicy: order.fetch === null ? 'none' : 'fetch-phase-allow-list-then-none',
    request: {
      nonce: order.nonce,
      projectDir: order.projectDir,
      toolchain: order.toolchain,
      reproduce: order.reproduce,
      options: order.options,
      waivers: order.waivers,
      repoUrl: source.kind === 'git' ? source.url : null,
      repoRef: source.kind === 'git' ? source.ref : null,
      archive: source.kind === 'git' ? null : { name: source.name, sha256: source.sha256, sizeBytes: source.sizeBytes },
      fetchCaSha256: accepts.caSha256,
      cratesMirror: accepts.cratesMirror,
    },
  }
  const result = await sampleResult({ record, order, measurement: item.measurement })
  return { result, verdict: await item.ask(result.files, { nonce: item.good.nonce, request: asked }) }
}

/** Another value that the schema takes. */
function changedAt(order: BuildOrder, path: string): BuildOrder {
  const copy = structuredClone(order)
  const names = path.split('.')
  const last = present(names.pop(), 'a name')
  const parent = names.reduce<object>((value, name) => Object(Reflect.get(value, name)), copy)
  const value: unknown = Reflect.get(parent, last)
  Reflect.set(parent, last, OTHER[path] ?? otherOf(value))
  return copy
}

const OTHER: Readonly<Record<string, unknown>> = {
  nonce: 'ff'.repeat(16),
  jobId: '4f9d2c1e-0000-4000-8000-00000000000f',
  toolchain: 'cargo',
  'source.kind': undefined,
  'source.url': 'https://git.example/other.git',
  'accepts.cratesMirror': null,
  'options.cargo.features': ['a', 'b'],
  'options.nix.caches': [{ ...cache, publicKey: `c-1:${'B'.repeat(43)}=` }],
  waivers: ['allow_lfs_pointers', 'any_toolchain'],
  'fetch.proxy': 'http://10.0.0.2:1',
}

function otherOf(value: unknown): unknown {
  if (typeof value === 'number') return value + 1
  if (typeof value === 'boolean') return !value
  return /^[0-9a-f]{64}$/.test(String(value)) ? '12'.repeat(32) : `${value ?? ''}x`
}

const kindOf = (path: string): keyof typeof whole => {
  for (const kind of ['go', 'npm', 'pnpm'] as const) if (path.startsWith(`options.${kind}.`)) return kind
  const isOfGit = ['source.url', 'source.ref', 'projectDir'].includes(path) || path.startsWith('options.cargo.')
  return isOfGit ? 'git' : 'archive'
}

describe('every field of an order', () => {
  test('goal: each has a rule, so that a new one cannot be forgotten', () => {
    expect([...new Set(pathsOf(BuildOrder as Schema))].sort()).toEqual(Object.keys(ORDER_FIELDS).sort())
  })

  test('goal: the two builds are good as they were asked for', async () => {
    for (const kind of ['git', 'archive'] as const) {
      const { verdict } = await resultOf(kind, ordered(kind))
      expect([kind, badChecks(verdict)]).toEqual([kind, []])
    }
  })

  test.each(Object.keys(ORDER_FIELDS).filter(path => path !== 'source.kind'))(
    '%s, as a host may change it',
    async path => {
      // Goal: what decides the result fails; anything else is in the receipt by its digest, and is shown.
      const before = ordered(kindOf(path))
      const order = changedAt(before, path)
      expect(orderText(order)).not.toBe(orderText(before))
      const { verdict } = await resultOf(kindOf(path), order)
      if (typeof rules[path] === 'object') {
        expect([badChecks(verdict), verdict.order]).toEqual([[], order])
        const forged = await sampleResult({ record: whole[kindOf(path)], order: before, measurement: item.measurement })
        const changed = withJson(forged.files, 'attestations/slsa.json', (value: Slsa) => {
          value.predicate.buildDefinition.internalParameters.order = order
        })
        expect(badChecks(await item.ask(changed, { request: requestOf(whole[kindOf(path)]) }))).toContain('order')
      } else if (path === 'builderId' || path === 'jobId') {
        // Said in several places: a verifier shows it, and fails where the places differ.
        const record = whole[kindOf(path)]
        const { files } = await sampleResult({ record, order, measurement: item.measurement })
        expect(badChecks(await item.ask(files, { request: requestOf(record) }))).toContain('order')
      } else expect(verdict.ok).toBe(false)
    },
  )

  test('goal: an archive in place of the repository, and the other way round', async () => {
    const { verdict } = await resultOf('git', { ...ordered('git'), source: ordered('archive').source })
    expect(reasonOf(verdict, 'source')).toStartWith('the host ordered an archive in place of the repository')
    const back = await resultOf('archive', { ...ordered('archive'), source: ordered('git').source })
    expect(reasonOf(back.verdict, 'source')).toStartWith('the host ordered a repository in place of the archive')
  })
})

type Slsa = { predicate: { buildDefinition: { internalParameters: { order: unknown } } } }

describe('a hostile host against a verifier that named', () => {
  const archive = requestOf(whole.archive)

  test('goal: another source', async () => {
    const other = { kind: 'tree', sha1: 'b'.repeat(40), sha256: 'd'.repeat(64) } as const
    const { verdict } = await resultOf('archive', ordered('archive'), { ...archive, source: other })
    expect(badChecks(verdict)).toEqual(['source'])
    expect(reasonOf(verdict, 'source')).toContain(`yours is the tree ${'d'.repeat(64)}`)
    const git = requestOf(whole.git)
    for (const [change, words] of [
      [{ commit: 'c'.repeat(40) }, 'yours is the commit'],
      [{ url: 'https://git.example/other.git' }, 'yours is the repository'],
      [{ ref: 'v2' }, 'yours is the ref "v2"'],
    ] as const) {
      const source = { kind: 'commit', commit: 'a'.repeat(40), url: 'any', ref: 'any', ...change } as const
      const found = await resultOf('git', ordered('git'), { ...git, source })
      expect([badChecks(found.verdict), reasonOf(found.verdict, 'source')]).toEqual([
        ['source'],
        expect.stringContaining(words),
      ])
    }
  })

  test('goal: the verdict says which archive the tree was unpacked from', async () => {
    const order = { ...ordered('archive'), source: { ...ordered('archive').source, sha256: '5a'.repeat(32) } }
    const { verdict } = await resultOf('archive', order as BuildOrder)
    expect(badChecks(verdict)).toEqual([])
    expect(reasonOf(verdict, 'source')).toEndWith(`, of the archive with SHA-256 ${'5a'.repeat(32)}`)
  })

  test('goal: no authority and no mirror', async () => {
    const plain = { ...archive, fetchCaSha256: null, cratesMirror: null }
    const accepts = { caSha256: null, cratesMirror: null }
    for (const [change, words] of [
      [{ ca, cratesMirror: null }, 'the host added certificate authorities'],
      [{ ca: null, cratesMirror: mirror }, `crates came from the mirror ${mirror}`],
    ] as const) {
      // A VM refuses this order; a verifier does, too, should one ever take it.
      const order = { ...ordered('archive'), accepts, fetch: { ...fetch, ...change } }
      const { verdict } = await resultOf('archive', order, plain)
      expect([badChecks(verdict), reasonOf(verdict, 'fetch')]).toEqual([['fetch'], expect.stringContaining(words)])
    }
    // The host writes into the order that the client had named them.
    const { verdict } = await resultOf('archive', ordered('archive'), plain)
    expect(badChecks(verdict)).toEqual(['request', 'fetch'])
  })

  test('goal: no toolchain, and the host names one by options in which nothing stands', async () => {
    const cargo = { package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null }
    const git = { ...requestOf(whole.git), options: null }
    for (const [options, words] of [
      [{ cargo }, 'it was built with options of the toolchain "cargo", but none was requested'],
      [
        { nix: { output: null, caches: [] } },
        'it was built with options of the toolchain "nix", but none was requested',
      ],
      [{ go: { proxy: 'https://go.example' } }, 'it was built with go_proxy "https://go.example", but none was'],
    ] as const) {
      const order = { ...ordered('git'), options } as BuildOrder
      const { verdict } = await resultOf('git', order, git)
      expect([badChecks(verdict), reasonOf(verdict, 'request')]).toEqual([['request'], expect.stringContaining(words)])
    }
    // Nor may it leave the client's choice out.
    const { verdict } = await resultOf('git', { ...ordered('git'), options: null }, { ...git, options: { cargo } })
    expect(reasonOf(verdict, 'request')).toContain('options of the toolchain none, but "cargo" was requested')
  })

  test('goal: nothing at all still says what was built', async () => {
    const { verdict } = await resultOf('archive', ordered('archive'), { ...archive, source: 'any' })
    expect(badChecks(verdict)).toEqual([])
    const source = present(
      verdict.checks.find(check => check.name === 'source'),
      'source',
    )
    expect([source.outcome, source.reason]).toEqual(['not-checked', expect.stringContaining('accepted any source: ')])
    expect(reasonOf(verdict, 'source')).toContain('c'.repeat(64))
  })
})
