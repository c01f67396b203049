import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { cargoRecord, hexOf, nixRecord, pnpmRecord, requestOf } from '../../../scripts/rigs/build/record.ts'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import { prettyJson } from '../../../src/attest/provenance/json.ts'
import type { LockedPackage } from '../../../src/attest/provenance/record.ts'
import type { Provenance } from '../../../src/attest/provenance/statement.ts'
import { packagesCheck } from '../../../src/verifier/build/packages.ts'
import { type BuildCase, badChecks, openBuildCase, reasonOf, withJson } from '../../rigs/build/case.ts'

let item: BuildCase
beforeAll(async () => {
  item = await openBuildCase()
})
afterAll(() => item.close())

type Crate = Extract<LockedPackage, { kind: 'crate' }>
const answer: Crate = {
  kind: 'crate',
  name: 'answer',
  version: '0.1.0',
  origin: 'replaced',
  compiled: true,
  from: { kind: 'tree', path: 'other/answer', sha256: hexOf('other') },
  dependsOn: [],
}
const withPackages = (...packages: Crate[]) => sampleResult({ record: { packages }, measurement: item.measurement })

describe('packages', () => {
  // Goal: the verdict counts the packages by their origin, and names those that are not what the lock's reader expects.
  test('where each came from', async () => {
    expect(reasonOf(await item.ask(item.good.files), 'packages')).toBe(
      "3 fetched and compared with the lock; 1 vendored in the source, the lock's checksum not compared; 1 of the source itself",
    )
    const { files } = await withPackages(answer)
    const verdict = await item.ask(files)
    expect(badChecks(verdict)).toEqual([])
    expect(reasonOf(verdict, 'packages')).toBe('1 replaced by the source: answer@0.1.0?download_url=file:other/answer')
    const nix = await sampleResult({ record: nixRecord, measurement: item.measurement })
    const ofNix = await item.ask(nix.files, { nonce: nix.nonce, request: requestOf(nixRecord) })
    expect([badChecks(ofNix), reasonOf(ofNix, 'packages')]).toEqual([[], 'none of Cargo, Go, npm or pnpm'])
  })

  // Goal: a result of a build with pnpm is verified as one with cargo is.
  test('packages of pnpm', async () => {
    const pnpm = await sampleResult({ record: pnpmRecord, measurement: item.measurement })
    const verdict = await item.ask(pnpm.files, { nonce: pnpm.nonce, request: requestOf(pnpmRecord) })
    expect([badChecks(verdict), reasonOf(verdict, 'packages')]).toEqual([
      [],
      '2 fetched and compared with the lock; 1 of the source itself',
    ])
  })

  // Goal: a checksum of a registry belongs to packages that the builder fetched.
  test.each(['vendored', 'path', 'replaced'] as const)('%s, with a checksum of a registry', async origin => {
    const { files } = await withPackages({
      ...answer,
      origin,
      from: { kind: 'registry', sha256: hexOf('x'), url: null },
    })
    const verdict = await item.ask(files)
    expect(badChecks(verdict)).toEqual(['packages'])
    expect(reasonOf(verdict, 'packages')).toContain(`${origin}, and yet with the checksum of a registry`)
  })

  // Goal: each document that lists the packages lists the same ones; a result from before origins says none.
  test('documents that differ', async () => {
    const sbom = withJson(item.good.files, 'attestations/sbom.cdx.json', (value: { components: unknown[] }) => {
      value.components.pop()
    })
    expect(reasonOf(await item.ask(sbom), 'packages')).toContain('differ in pkg:cargo/demo@0.1.0')
    type Statement = {
      predicate: { buildDefinition: { resolvedDependencies: { uri?: string; annotations?: { origin?: string } }[] } }
    }
    const slsa = withJson(item.good.files, 'attestations/slsa.json', (value: Statement) => {
      const { buildDefinition } = value.predicate
      buildDefinition.resolvedDependencies = buildDefinition.resolvedDependencies.filter(
        ({ uri }) => uri?.includes('serde') !== true,
      )
    })
    expect(reasonOf(await item.ask(slsa), 'packages')).toContain('differ in pkg:cargo/serde@1.0.228')
    const none = withJson(item.good.files, 'attestations/slsa.json', (value: Statement) => {
      const { buildDefinition } = value.predicate
      buildDefinition.resolvedDependencies = buildDefinition.resolvedDependencies.filter(
        ({ uri }) => uri?.startsWith('pkg:cargo/') !== true,
      )
    })
    expect(badChecks(await item.ask(none))).toContain('packages')
    expect(reasonOf(await item.ask(none), 'packages')).toContain('differ in pkg:cargo/serde@1.0.228')
    const old = withJson(item.good.files, 'attestations/slsa.json', (value: Statement) => {
      for (const { annotations } of value.predicate.buildDefinition.resolvedDependencies) delete annotations?.origin
    })
    const verdict = await item.ask(old)
    expect(verdict.checks.find(check => check.name === 'packages')).toMatchObject({
      outcome: 'not-checked',
      required: false,
    })
  })
})

// Goal: the time of the comparison grows with the number of packages, not with its square.
test('many packages', () => {
  const uris = (prefix: string) => Array.from({ length: 30_000 }, (_, at) => `pkg:cargo/${prefix}${at}@1.0.0`)
  const slsa = uris('a').map(uri => ({ name: 'a', uri, annotations: { origin: 'fetched' } }))
  const components = uris('a').map(purl => ({ purl, properties: [{ name: 'strongroom:origin', value: 'fetched' }] }))
  const documents = new Map([
    ['attestations/slsa.json', { predicate: { buildDefinition: { resolvedDependencies: slsa } } }],
    ['attestations/sbom.cdx.json', { bomFormat: 'CycloneDX', components }],
  ] as const)
  const files = {
    documents: new Map([...documents].map(([path, value]) => [path, prettyJson(value)])),
    digests: new Map(),
  }
  const wanted = uris('b').map(uri => ({ uri }))
  const statement = { predicate: { buildDefinition: { resolvedDependencies: wanted } } } as unknown as Provenance
  // Processor time: other files share the processors.
  const before = process.cpuUsage()
  const { outcome, reason } = packagesCheck(files, statement)
  const { user, system } = process.cpuUsage(before)
  expect((user + system) / 1000).toBeLessThan(2500)
  expect([outcome, reason]).toEqual(['fail', expect.stringContaining('differ in pkg:cargo/a0@1.0.0; pkg:cargo/a1@')])
})

// Goal: a source with Git LFS pointers is refused by name, unless the client accepts them.
test('Git LFS pointers', async () => {
  const lfsPointers = { count: 2, first: ['data.bin', 'b'] }
  const record = { source: { ...cargoRecord.source, lfsPointers } }
  const { files } = await sampleResult({ record, measurement: item.measurement })
  const refused = await item.ask(files)
  expect(badChecks(refused)).toEqual(['lfs-pointers'])
  expect(reasonOf(refused, 'lfs-pointers')).toContain('Git LFS pointers without their content, 2: "data.bin", "b"')
  const accepted = await item.ask(files, { request: { ...requestOf(cargoRecord), lfsPointers: 'any' } })
  expect(badChecks(accepted)).toEqual([])
  expect(accepted.ok).toBe(true)
})

// Goal: the verdict names the compiler, and refuses another than the one that the source pins, unless it is accepted.
test('a pinned compiler', async () => {
  expect(reasonOf(await item.ask(item.good.files), 'compiler')).toBe('rustc 1.96.0; the source pins none')
  const cases: [channel: string, isGood: boolean][] = [
    ['stable', true],
    ['1.96', true],
    ['1.96.0', true],
    ['1.96.0-x86_64-unknown-linux-gnu', true],
    ['1.9', false],
    ['1.80', false],
    ['1.96.1', false],
    ['beta', false],
    ['nightly-2026-01-01', false],
    ['own', false],
  ]
  for (const [channel, isGood] of cases) {
    const pinned = { path: 'rust-toolchain.toml', channel }
    const { files } = await sampleResult({ record: { pinned }, measurement: item.measurement })
    expect([channel, badChecks(await item.ask(files))]).toEqual([channel, isGood ? [] : ['compiler']])
    const accepted = await item.ask(files, { request: { ...requestOf(cargoRecord), compiler: 'any' } })
    expect(badChecks(accepted)).toEqual([])
  }
})

// Goal: the verdict names the toolchain that was fetched, with the digests of its manifest and components. It
// refuses a mirror that the request does not name, and a toolchain that is not the compiler's.
test('a fetched compiler', async () => {
  const pinned = { path: 'rust-toolchain.toml', channel: '1.96.0' }
  const mirror = 'https://rust.example'
  const component = { name: 'rustc', uri: `${mirror}/dist/2026-01-01/rustc.tar.xz`, sha256: 'ef'.repeat(32) }
  const rust = {
    mirror,
    version: '1.96.0',
    manifest: { uri: `${mirror}/dist/channel-rust-1.96.0.toml`, sha256: 'cd'.repeat(32) },
    components: [component],
  }
  const cargo = {
    ...{ package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null },
  }
  const judgedWith = async (changes: Partial<typeof rust>, asked: string | null = mirror) => {
    const options = { cargo: { ...cargo, rustMirror: mirror } }
    const record = { pinned, rust: { ...rust, ...changes }, request: { ...cargoRecord.request, options } }
    const { files } = await sampleResult({ record, measurement: item.measurement })
    const request = {
      ...requestOf(cargoRecord),
      options: { cargo: { ...cargo, ...(asked === null ? {} : { rustMirror: asked }) } },
    }
    return await item.ask(files, { request })
  }
  const good = await judgedWith({})
  expect(badChecks(good)).toEqual([])
  expect(reasonOf(good, 'compiler')).toBe(
    `rustc 1.96.0, as rust-toolchain.toml pins it; Rust 1.96.0 fetched from ${mirror}: channel manifest SHA-256 ${'cd'.repeat(32)}, rustc SHA-256 ${'ef'.repeat(32)}`,
  )
  expect(badChecks(await judgedWith({}, null))).toEqual(['request', 'compiler'])
  const elsewhere = await judgedWith({ mirror: 'https://evil.example' })
  expect([badChecks(elsewhere), reasonOf(elsewhere, 'compiler')]).toEqual([
    ['compiler'],
    'it came from the mirror https://evil.example, which the request does not name',
  ])
  const other = await judgedWith({ version: '1.96.1' })
  expect([badChecks(other), reasonOf(other, 'compiler')]).toEqual([
    ['compiler'],
    'rustc 1.96.0 compiled it, and Rust 1.96.1 was fetched',
  ])
})
