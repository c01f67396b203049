import { describe, expect, test } from 'bun:test'
import { present } from '../../../src/base/assert.ts'
import {
  cargoMetadataArgv,
  cargoResolveConfig,
  cargoResolveEnvironment,
  lockOption,
} from '../../../src/builder/cargo/cargo.plan.ts'
import { isFinal, resolveFailure } from '../../../src/builder/cargo/causes.plan.ts'
import { readCargoLock } from '../../../src/builder/cargo/lock.codec.ts'
import { readMetadata } from '../../../src/builder/cargo/metadata.codec.ts'
import { cratesOf } from '../../../src/builder/cargo/packages.plan.ts'
import { BuildFailure } from '../../../src/builder/failure.ts'

const sum = 'ab'.repeat(32)
const commit = 'cd'.repeat(20)
const tree = 'ef'.repeat(32)
const cratesIo = 'registry+https://github.com/rust-lang/crates.io-index'
const repository = 'git+https://git.example/reply?branch=main'
const cacheDir = 'index.crates.io-1949cf8c6b5b557f'

type Pkg = {
  name: string
  source: string | null
  at: string
  deps?: { name: string; source: string | null; kind?: string }[]
}
const idOf = ({ name, source, at }: Pkg) =>
  source === null ? `path+file://${at}#${name}@0.1.0` : `${source.split('#')[0]}#${name}@0.1.0`

/** As cargo prints it; dependencies are found by name. */
function metadataOf(packages: readonly Pkg[]): string {
  const byName = (name: string) => packages.find(pkg => pkg.name === name) as Pkg
  return JSON.stringify({
    version: 1,
    workspace_root: '/build/source',
    workspace_members: packages.slice(0, 1).map(idOf),
    packages: packages.map(pkg => ({
      id: idOf(pkg),
      name: pkg.name,
      version: '0.1.0',
      source: pkg.source,
      manifest_path: `${pkg.at}/Cargo.toml`,
      dependencies: (pkg.deps ?? []).map(({ name, source }) => ({ name, source })),
    })),
    resolve: {
      nodes: packages.map(pkg => ({
        id: idOf(pkg),
        deps: (pkg.deps ?? []).map(({ name, kind = null }) => ({ pkg: idOf(byName(name)), dep_kinds: [{ kind }] })),
      })),
    },
  })
}

const lockOf = (...packages: [name: string, source: string | null][]) =>
  readCargoLock(
    `version = 4\n${packages
      .map(([name, source]) => {
        const pin =
          source === null ? '' : `source = "${source}"\n${source.startsWith('git+') ? '' : `checksum = "${sum}"\n`}`
        return `[[package]]\nname = "${name}"\nversion = "0.1.0"\n${pin}`
      })
      .join('\n')}`,
  )

const trees: Readonly<Record<string, string>> = { '': tree, 'vendor/answer': tree, 'other/answer': tree }
const treeOf = (path: string) => (trees[path] === undefined ? null : { path, sha256: trees[path] })

function failureOf(act: () => unknown): string {
  try {
    act()
  } catch (error) {
    if (error instanceof BuildFailure) return `${error.errorType}: ${error.message}`
    throw error
  }
  return 'taken'
}

/** Origin and place of `answer`, on which `uses` depends by the registry. */
function answerAs(
  answer: Pick<Pkg, 'source' | 'at'>,
  given: { lock?: [string, string | null][]; fetched?: Record<string, string> | null; compiledAt?: string } = {},
): readonly unknown[] {
  const uses = { name: 'uses', source: null, at: '/build/source', deps: [{ name: 'answer', source: cratesIo }] }
  const pkg = { name: 'answer', ...answer }
  const resolve = readMetadata(metadataOf([uses, pkg]))
  if (resolve === null) throw new Error('not read')
  const { packages, members } = cratesOf({
    resolve,
    lock: lockOf(
      ...(given.lock ?? [
        ['answer', cratesIo],
        ['uses', null],
      ]),
    ),
    fetched: given.fetched == null ? null : new Map(Object.entries(given.fetched)),
    compiled: new Map([[idOf(pkg), `${given.compiledAt ?? answer.at}/Cargo.toml`]]),
    treeOf,
  })
  const found = packages.find(({ name }) => name === 'answer')
  expect(members).toEqual(['pkg:cargo/uses@0.1.0?download_url=file:.'])
  expect(found?.compiled).toBe(true)
  return [found?.origin, found?.from]
}

describe('origins', () => {
  const unpacked = `/build/cargo/registry/src/${cacheDir}/answer-0.1.0`
  const crate = `${cacheDir}/answer-0.1.0`
  const inTree = (path: string) => ({ kind: 'tree', path, sha256: tree })

  // Goal: a package has the lock's checksum or commit only if the builder fetched it, and each has its one origin.
  test('each', () => {
    const fetched = { [crate]: sum }
    const pin = { kind: 'registry', sha256: sum, url: null }
    expect(answerAs({ source: cratesIo, at: unpacked }, { fetched })).toEqual(['fetched', pin])
    const vendored = { source: cratesIo, at: '/build/source/vendor/answer' }
    expect(answerAs(vendored)).toEqual(['vendored', inTree('vendor/answer')])
    expect(answerAs(vendored, { fetched })).toEqual(['vendored', inTree('vendor/answer')])
    const other = { source: null, at: '/build/source/other/answer' }
    expect(answerAs(other)).toEqual(['replaced', inTree('other/answer')])
    expect(
      answerAs(other, {
        lock: [
          ['answer', null],
          ['uses', null],
        ],
      }),
    ).toEqual(['patched', inTree('other/answer')])
    // `[replace]`: the lock has both.
    const both: [string, string | null][] = [
      ['answer', null],
      ['answer', cratesIo],
      ['uses', null],
    ]
    expect(answerAs(other, { lock: both })).toEqual(['replaced', inTree('other/answer')])
    const patch = { source: `${repository}#${commit}`, at: `/build/cargo/git/checkouts/reply-1/${commit.slice(0, 7)}` }
    const git = { kind: 'git', url: 'https://git.example/reply', commit }
    const locked: [string, string | null][] = [
      ['answer', `${repository}#${commit}`],
      ['uses', null],
    ]
    expect(answerAs(patch, { lock: locked, fetched: {} })).toEqual(['patched', git])
    // A local registry is in the source: cargo unpacks it where it unpacks fetched crates.
    const local = { source: cratesIo, at: '/build/cargo/registry/src/-77/answer-0.1.0' }
    expect(answerAs(local)).toEqual(['vendored', inTree('')])
    expect(answerAs(local, { fetched })).toEqual(['vendored', inTree('')])
  })

  // Goal: what the lock lacks, or lies neither in the source nor among the fetched files, ends the build by name.
  test('refused', () => {
    const lacking: [string, string | null][] = [['uses', null]]
    const cases: [() => unknown, RegExp][] = [
      [
        () => answerAs({ source: cratesIo, at: unpacked }, { fetched: { [crate]: sum }, lock: lacking }),
        /answer 0.1.0 .* lacks/,
      ],
      [() => answerAs({ source: null, at: '/build/source/other/answer' }, { lock: lacking }), /answer 0.1.0, .* lacks/],
      [
        () => answerAs({ source: cratesIo, at: unpacked }, { fetched: { [crate]: 'cd'.repeat(32) } }),
        /neither in the source/,
      ],
      [() => answerAs({ source: cratesIo, at: '/usr/share/cargo/registry/answer-0.1.0' }), /neither in the source/],
      [() => answerAs({ source: null, at: '/usr/share/cargo/registry/answer-0.1.0' }), /neither in the source/],
      [() => answerAs({ source: cratesIo, at: '/build/source/vendor/../../cargo/x' }), /neither in the source/],
      // A link in the source that leads nowhere, or out.
      [() => answerAs({ source: cratesIo, at: '/build/source/link/answer' }), /neither in the source/],
      [
        () =>
          answerAs(
            { source: cratesIo, at: '/build/source/vendor/answer' },
            { compiledAt: '/build/source/other/answer' },
          ),
        /other\/answer\/Cargo.toml", which is neither/,
      ],
    ]
    for (const [act, why] of cases) expect(failureOf(act)).toMatch(new RegExp(`^build_failed: .*${why.source}`))
  })

  // Goal: one whole document of cargo's is an answer; with a forged one before or after it there is none.
  test('what is no answer', () => {
    const good = metadataOf([{ name: 'uses', source: null, at: '/build/source' }])
    expect(readMetadata(`${good}\n`)).not.toBeNull()
    for (const text of [
      '',
      `{}${good}`,
      `${good}{}`,
      `${good}\n${good}`,
      `[${good}`,
      '{"version":1}',
      good.replace('"version":1', '"version":2'),
    ])
      expect(readMetadata(text)).toBeNull()
  })

  // Goal: dependencies that only tests need are no edge of the graph.
  test('the graph', () => {
    const answer = { name: 'answer', source: null, at: '/build/source/other/answer' }
    const uses = (kind: string | undefined) => ({
      name: 'uses',
      source: null,
      at: '/build/source',
      deps: [{ name: 'answer', source: null, ...(kind === undefined ? {} : { kind }) }],
    })
    const edges = (kind?: string) => readMetadata(metadataOf([uses(kind), answer]))?.edges.get(idOf(uses(kind)))
    expect(edges()).toEqual([idOf(answer)])
    expect(edges('build')).toEqual([idOf(answer)])
    expect(edges('dev')).toEqual([])
  })
})

// Goal: while cargo lists packages, the source chooses neither compiler nor wrapper, flag or library.
test('cargo lists packages without programs of the source', () => {
  const env = cargoResolveEnvironment('/usr/bin', { hasSettings: true })
  expect([env.RUSTC, env.RUSTC_WRAPPER, env.RUSTC_WORKSPACE_WRAPPER, env.CARGO_ENCODED_RUSTFLAGS]).toEqual([
    'rustc',
    '',
    '',
    '',
  ])
  expect(cargoResolveConfig('/usr/bin')).toBe(`[env]
PATH = { value = "/usr/bin", force = true }
LD_PRELOAD = { value = "", force = true }
LD_AUDIT = { value = "", force = true }
LD_LIBRARY_PATH = { value = "", force = true }
`)
  expect(cargoMetadataArgv({ mirror: null, lock: [], options: null })).toEqual([
    ...['cargo', 'metadata', '--format-version', '1', '--locked', '--offline'],
    ...['--filter-platform', 'x86_64-unknown-linux-gnu', '--config', '/build/resolve.toml'],
  ])
})

// Goal: a cargo that reads resolver.lockfile-path gets the recorded lock by name; an older one would warn of it.
test('the lock by name', () => {
  expect(lockOption('cargo 1.96.0 (abc 2026-05-01)', 'ws/Cargo.lock')).toEqual([])
  for (const version of ['cargo 1.97.0', 'cargo 2.0.0'])
    expect(lockOption(version, 'ws/Cargo.lock')).toEqual([
      '--config',
      'resolver.lockfile-path="/build/source/ws/Cargo.lock"',
    ])
})

// Goal: each way in which cargo cannot list a source's packages has a message with its cause and remedy.
test.each([
  ['error: cannot update the lock file /build/source/Cargo.lock because --locked was passed to prevent this', true],
  ['error: the lock file /build/source/Cargo.lock needs to be updated but --locked was passed', true],
  ['error: no matching package named `answer` found\nAs a reminder, you are using offline mode (--offline)', false],
])('a stale lock: %s', (output, isStale) => {
  expect(isFinal(output)).toBe(isStale)
  const why = failureOf(() => {
    throw resolveFailure(output, [])
  })
  if (isStale) expect(why).toStartWith('source_invalid: Cargo.lock does not match Cargo.toml; run `cargo update')
  else expect(why).toStartWith('build_failed: cargo cannot resolve the packages of Cargo.lock: ')
})

// Goal: a package that takes the place of another one for any dependent is a substitute, even if the source's own
// manifest names it by its path, too.
test('a substitute that is also named by its path', () => {
  const own: Pkg = { name: 'own', source: null, at: '/build/source/other/answer' }
  const dep: Pkg = { ...{ name: 'dep', source: cratesIo, at: '/build/cargo/registry/src/-1/dep-0.1.0' } }
  const uses = (deps: NonNullable<Pkg['deps']>): Pkg => ({ name: 'uses', source: null, at: '/build/source', deps })
  const byPath = { name: 'own', source: null }
  const substitutesOf = (...packages: Pkg[]) => [...(readMetadata(metadataOf(packages))?.substitutes ?? ['none'])]
  const byRegistry = { ...dep, deps: [{ name: 'own', source: cratesIo }] }
  const onDep = { name: 'dep', source: cratesIo }
  expect(substitutesOf(uses([byPath, onDep]), byRegistry, own)).toEqual([idOf(own)])
  expect(substitutesOf(uses([byPath]), own)).toEqual([])
})

// Goal: of two locked commits of one repository the evidence names the one that was checked out.
test('two commits of one repository', () => {
  const other = '12'.repeat(20)
  const lock = lockOf(['answer', `${repository}#${other}`], ['answer', `${repository}#${commit}`], ['uses', null])
  const at = (digits: string) => {
    const answer = { name: 'answer', source: repository, at: `/build/cargo/git/checkouts/reply-1/${digits}` }
    const uses = { name: 'uses', source: null, at: '/build/source', deps: [{ name: 'answer', source: repository }] }
    const resolve = present(readMetadata(metadataOf([uses, answer])), 'it is whole')
    const facts = { resolve, lock, fetched: new Map<string, string>(), compiled: new Map<string, string>(), treeOf }
    return cratesOf(facts).packages.find(({ name }) => name === 'answer')?.from
  }
  expect(at(commit.slice(0, 8))).toMatchObject({ kind: 'git', commit })
  expect(at(other.slice(0, 8))).toMatchObject({ kind: 'git', commit: other })
  expect(failureOf(() => at('0'.repeat(8)))).toMatch(/lacks/)
})
