// Goal: the order of a host is the one of the receipt, every place that repeats it agrees, and what a client did not
// ask for fails by the line that says so.

import { describe, expect, test } from 'bun:test'
import { cargoRecord, nixRecord, orderOf, requestOf } from '../../../scripts/rigs/build/record.ts'
import type { Provenance } from '../../../src/attest/provenance/statement.ts'
import { fromHex, utf8 } from '../../../src/base/bytes.ts'
import { type BuildOrder, orderText } from '../../../src/contract/vm/build-order.ts'
import { judgeOrder, ORDER_FIELDS } from '../../../src/verifier/build/order.ts'
import type { AskedRequest, AskedSource } from '../../../src/verifier/build/question.ts'
import type { JudgedReceipts } from '../../../src/verifier/build/receipts.ts'

const sha256 = (text: string) => new Uint8Array(Bun.CryptoHasher.hash('sha256', text))
const hex = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')
const [git, archive] = [orderOf(cargoRecord), orderOf(nixRecord)]
const [tree, sha1, commit] = ['c'.repeat(64), 'b'.repeat(40), 'a'.repeat(40)]
const mirror = 'sparse+https://mirror.example/index/'
const ca = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
const fetchOnly = 'fetch-phase-allow-list-then-none'

/** externalParameters of slsa.json for an order. */
function parametersOf({ source, accepts, nonce, projectDir, toolchain, reproduce, options, waivers }: BuildOrder) {
  const { kind: _, ...rest } = source
  const git = source.kind === 'git'
  return {
    ...{ nonce, projectDir, toolchain, reproduce, options, waivers, archive: git ? null : rest },
    ...{ repoUrl: git ? source.url : null, repoRef: git ? source.ref : null },
    ...{ fetchCaSha256: accepts.caSha256, cratesMirror: accepts.cratesMirror },
  }
}

type Dependency = { name: string; uri?: string; digest?: object; annotations?: object }
type Case = {
  readonly order?: BuildOrder
  readonly asked?: Partial<AskedRequest>
  readonly parameters?: object
  /** Members of internalParameters beside the order. */
  readonly internal?: object
  readonly dependencies?: readonly Dependency[]
  readonly statement?: object | null
  /** In provenance.json. */
  readonly uri?: string
  readonly digest?: object
  readonly treeDigest?: object | null
  readonly run?: object
  readonly tools?: object
  readonly provenance?: null
  readonly isOwn?: boolean
  readonly slsa?: Uint8Array
}

function judge({ order = git, asked = {}, isOwn = true, ...given }: Case = {}) {
  const isGit = order.source.kind === 'git'
  const { digest = {}, treeDigest = { sha256: tree }, run = {}, tools = { rustc: { version: 'rustc 1.96.0' } } } = given
  const provenance = {
    predicate: {
      buildDefinition: {
        externalParameters: {
          source: {
            digest: { gitCommit: isGit ? commit : '', gitTree: sha1, ...digest },
            uri: given.uri ?? (isGit ? 'https://git.example/demo.git' : ''),
          },
        },
        internalParameters: { toolchain: tools },
        resolvedDependencies: treeDigest === null ? [] : [{ name: 'source-tree', uri: '', digest: treeDigest }],
      },
      runDetails: { metadata: { invocationId: order.jobId }, builder: { id: order.builderId }, ...run },
    },
  }
  const slsa = JSON.stringify({
    predicate: {
      buildDefinition: {
        internalParameters: { order, pinnedCompiler: null, ...given.internal },
        externalParameters: given.parameters ?? parametersOf(order),
        resolvedDependencies: given.dependencies ?? [
          { name: 'source-tree', annotations: { lfsPointers: { count: 0, first: [] } } },
        ],
      },
    },
  })
  const statement = {
    orderDigest: sha256(orderText(order)),
    jobId: order.jobId,
    nonce: fromHex(order.nonce),
    networkPolicy: order.fetch === null ? 'none' : fetchOnly,
    fetchProxy: order.fetch?.proxy ?? null,
    fetchMirror: order.fetch?.cratesMirror ?? null,
    fetchAuthoritiesDigest: order.fetch?.ca == null ? null : sha256(order.fetch.ca),
    ...given.statement,
  }
  const read = {
    files: { documents: new Map([['attestations/slsa.json', given.slsa ?? utf8(slsa)]]), digests: new Map() },
    provenance: given.provenance === null ? null : (provenance as unknown as Provenance),
    provenanceDigest: null,
    evidence: null,
  }
  const receipts = { dispatch: { statement: given.statement === null ? null : statement } } as unknown as JudgedReceipts
  const request = { ...requestOf(isGit ? cargoRecord : nixRecord), ...asked }
  const { checks, order: found } = judgeOrder(read, request, receipts, isOwn)
  const of = (name: string) => {
    const { outcome, reason, required } = checks.find(check => check.name === name) ?? {}
    return [outcome, reason, required]
  }
  const bad = checks.filter(({ outcome, required }) => outcome === 'fail' || (outcome !== 'pass' && required))
  return { of, found, bad: bad.map(({ name }) => name), names: checks.map(({ name }) => name) }
}

test('goal: a good order passes with every line', () => {
  for (const order of [git, archive]) {
    const { bad, names, found } = judge({ order })
    expect([bad, names, found]).toEqual([
      [],
      ['source', 'order', 'request', 'fetch', 'lfs-pointers', 'compiler'],
      order,
    ])
  }
  expect(judge().of('order')).toEqual(['pass', hex(orderText(git)), true])
  expect(judge().of('request')[1]).toBe('project_dir none, toolchain as detected, built twice')
  expect(judge({ order: archive }).of('request')[1]).toBe('project_dir "sub", toolchain nix, built once')
})

test('goal: reasons of the fields that are only shown', () => {
  const bound = 'a build that goes beyond it fails'
  const ofArchive = 'the tree id of what is in the archive is compared, however it is packed'
  const shown = Object.entries(ORDER_FIELDS).flatMap(([path, rule]) =>
    typeof rule === 'object' && !path.startsWith('limits.') ? [[path, rule.shown]] : [],
  )
  expect(shown).toEqual([
    ['source.sizeBytes', ofArchive],
    ['source.sha256', ofArchive],
    ['imageSummary', 'it names a document about the image, and no part of the build reads it'],
    ['fetch.proxy', 'it carries TLS connections whose other end the VM authenticates'],
  ])
  for (const [path, rule] of Object.entries(ORDER_FIELDS)) {
    if (path.startsWith('limits.')) expect([path, rule]).toEqual([path, { shown: bound }])
  }
})

test('goal: of another builder there is no order, which is said; of our own one that cannot be read fails', () => {
  const other = judge({ isOwn: false })
  const reason = 'another builder made this result: it states no order'
  expect([other.names, other.bad, other.found]).toEqual([['source', 'order', 'request', 'fetch'], [], null])
  for (const name of ['order', 'request', 'fetch']) expect(other.of(name)).toEqual(['not-checked', reason, false])
  for (const slsa of [utf8('x'), utf8('{}')]) {
    const unread = judge({ slsa })
    expect([unread.bad, unread.found]).toEqual([['order', 'request', 'fetch'], null])
    expect(unread.of('request')).toEqual(['not-checked', 'the order cannot be read', true])
  }
  const wrong = judge({ internal: { order: { ...git, nonce: 1 } } })
  expect([wrong.bad, wrong.of('order')[1]]).toEqual([
    ['order', 'request', 'fetch'],
    expect.stringContaining('slsa.json: internalParameters.order: /nonce'),
  ])
})

// Goal: whatever stands in several places says the same in each.
describe('the order', () => {
  const fetch = { proxy: 'http://10.0.0.1:8444', cratesMirror: mirror, ca }
  const accepts = { caSha256: hex(ca), cratesMirror: mirror }
  const fetching = { ...git, fetch, accepts }
  const asked = { fetchCaSha256: hex(ca), cratesMirror: mirror }

  test('goal: a fetch by a proxy, a mirror and an authority passes with the receipt that has them', () => {
    const { bad, of } = judge({ order: fetching, asked })
    expect([bad, of('fetch')]).toEqual([
      [],
      [
        'pass',
        `by the proxy http://10.0.0.1:8444, public authorities and those of SHA-256 ${hex(ca)}, mirror ${mirror}`,
        true,
      ],
    ])
    const plain = { ...git, fetch: { ...fetch, ca: null, cratesMirror: null } }
    expect(judge({ order: plain }).of('fetch')[1]).toBe(
      'by the proxy http://10.0.0.1:8444, public authorities, no mirror',
    )
    expect(judge().of('fetch')[1]).toBe('nothing could be fetched')
  })

  test('goal: an unread receipt leaves it unchecked, which no verdict passes', () => {
    expect(judge({ statement: null }).of('order')).toEqual([
      'not-checked',
      'the receipt of the dispatch cannot be read',
      true,
    ])
  })

  const statements: readonly (readonly [string, object, string])[] = [
    [
      'order',
      { orderDigest: sha256('x') },
      `its SHA-256 is ${hex(orderText(fetching))}, the receipt of the dispatch has`,
    ],
    ['job', { jobId: 'other' }, `job is "other", the order has "${git.jobId}"`],
    ['nonce', { nonce: Uint8Array.of(1) }, `nonce is "01", the order has "${git.nonce}"`],
    ['network policy', { networkPolicy: 'none' }, `network policy is "none", the order has "${fetchOnly}"`],
    ['proxy', { fetchProxy: null }, 'proxy is null, the order has "http://10.0.0.1:8444"'],
    ['mirror', { fetchMirror: null }, `mirror is null, the order has ${JSON.stringify(mirror)}`],
    ['authorities', { fetchAuthoritiesDigest: null }, `authorities is null, the order has "${hex(ca)}"`],
  ]
  test.each(statements)('goal: another %s in the receipt fails', (_, statement, words) => {
    const { bad, of } = judge({ order: fetching, asked, statement })
    expect([bad, of('order')[1]]).toEqual([['order'], expect.stringContaining(words)])
  })

  test('goal: without a fetch the receipt has none', () => {
    for (const statement of [
      { networkPolicy: fetchOnly },
      { fetchProxy: 'http://a:1' },
      { fetchMirror: mirror },
      { fetchAuthoritiesDigest: sha256(ca) },
    ]) {
      expect(judge({ statement }).bad).toEqual(['order'])
    }
  })

  test('goal: another job or builder in the provenance fails', () => {
    const metadata = { invocationId: 'other' }
    expect(judge({ run: { metadata } }).of('order')[1]).toBe(
      `job in the provenance is "other", the order has "${git.jobId}"`,
    )
    expect(judge({ run: { builder: { id: 'other' } } }).of('order')[1]).toBe(
      `builder is "other", the order has "${git.builderId}"`,
    )
  })

  test.each([
    ['nonce', 'x'],
    ['projectDir', 'x'],
    ['toolchain', 'nix'],
    ['reproduce', false],
    ['options', {}],
    ['waivers', ['allow_lfs_pointers']],
    ['archive', {}],
    ['repoUrl', 'x'],
    ['repoRef', 'x'],
    ['fetchCaSha256', 'x'],
    ['cratesMirror', 'x'],
  ])('goal: another %s in externalParameters fails', (field, value) => {
    const parameters = { ...parametersOf(git), [field]: value }
    expect([judge({ parameters }).bad, judge({ parameters }).of('order')[1]]).toEqual([
      ['order'],
      expect.stringMatching(new RegExp(`^${field} is `)),
    ])
  })
})

// Goal: what was not requested fails.
describe('the request', () => {
  const words = (field: string, found: string, expected: string) =>
    `it was built with ${field} ${found}, but ${expected} was requested`
  const waived = { ...git, waivers: ['any_toolchain' as const] }

  test.each<readonly [string, BuildOrder, Partial<AskedRequest>, string]>([
    ['directory', git, { projectDir: 'sub' }, words('project_dir', 'none', '"sub"')],
    ['toolchain', git, { toolchain: 'nix' }, words('toolchain', 'none', '"nix"')],
    ['name', archive, { sourceName: 'b.zip' }, words('source_name', '"demo.tar.gz"', '"b.zip"')],
    ['reproduction', { ...git, reproduce: false }, {}, words('reproduce', 'false', 'true')],
    ['waiver', waived, {}, words('any_toolchain', 'true', 'false')],
    ['waiver of LFS', { ...git, waivers: ['allow_lfs_pointers'] }, {}, words('allow_lfs_pointers', 'true', 'false')],
    ['authority', git, { fetchCaSha256: hex(ca) }, words('fetch_ca_sha256', 'none', `"${hex(ca)}"`)],
    ['mirror', git, { cratesMirror: mirror }, words('crates_mirror', 'none', JSON.stringify(mirror))],
  ])('goal: another %s', (_, order, asked, problem) => {
    const { bad, of } = judge({ order, asked })
    expect([bad, of('request')[1]]).toEqual([['request'], problem])
  })

  test('goal: each option of a toolchain, and the toolchain of options without a word', () => {
    const cargo = { package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null }
    const of = (options: BuildOrder['options'], asked: AskedRequest['options'] = null) =>
      judge({ order: { ...git, options }, asked: { options: asked } }).of('request')[1]
    expect(of({ cargo: { ...cargo, package: 'cli' } })).toBe(words('package', '"cli"', 'none'))
    expect(of({ cargo: { ...cargo, features: ['a', 'b'] } }, { cargo: { ...cargo, features: ['b', 'a'] } })).toBe(
      words('features', '"a b"', '"b a"'),
    )
    expect(of({ cargo })).toBe(words('options of the toolchain', '"cargo"', 'none'))
    expect(of(null, { cargo })).toBe(words('options of the toolchain', 'none', '"cargo"'))
    expect(of({ cargo }, { cargo })).toStartWith('project_dir none, toolchain as detected, built twice')
    const parameters = { ...parametersOf(git), nonce: 'x' }
    expect(judge({ parameters }).of('order')[1]).toBe(`nonce is "x", the order has "${git.nonce}"`)
  })

  test('goal: what the client left to the host passes', () => {
    expect(judge({ order: archive, asked: { sourceName: 'any' } }).bad).toEqual([])
    // A name is of an archive alone.
    expect(judge({ asked: { sourceName: 'x' } }).bad).toEqual([])
    expect(judge({ asked: { reproduce: false } }).bad).toEqual([])
    expect(judge({ order: waived, asked: { compiler: 'any' } }).bad).toEqual([])
    expect(judge({ order: waived, asked: { compiler: 'any' } }).of('request')[1]).toEndWith(', any_toolchain')
    expect(judge({ asked: { compiler: 'any', lfsPointers: 'any' } }).bad).toEqual([])
  })

  test('goal: origins of a fetch that it does not name', () => {
    const fetch = { proxy: 'http://10.0.0.1:8444', cratesMirror: null, ca: null }
    const added = judge({ order: { ...git, fetch: { ...fetch, ca } } })
    expect([added.bad, added.of('fetch')[1]]).toEqual([
      ['fetch'],
      `the host added certificate authorities, SHA-256 ${hex(ca)}, which the request does not name`,
    ])
    const mirrored = judge({ order: { ...git, fetch: { ...fetch, cratesMirror: mirror } } })
    expect([mirrored.bad, mirrored.of('fetch')[1]]).toEqual([
      ['fetch'],
      `crates came from the mirror ${mirror}, which the request does not name`,
    ])
  })
})

// Goal: what was built is what the caller has.
describe('the source', () => {
  const of = (given: Case) => judge(given).of('source')
  const built = `commit ${commit} of https://git.example/demo.git, ref "main", git tree ${sha1}, SHA-256 tree ${tree}`
  const packed = `archive, git tree ${sha1}, SHA-256 tree ${tree}, of the archive with SHA-256 ${hex('archive')}`
  const asked = (source: AskedSource | 'any') => ({ asked: { source } })
  const wanted = { kind: 'commit', commit, url: 'https://git.example/demo.git', ref: 'main' } as const
  const archived = { kind: 'tree', sha1, sha256: tree } as const

  test('goal: it passes in words', () => {
    expect(of({})).toEqual(['pass', built, true])
    expect(of({ order: archive })).toEqual(['pass', packed, true])
    expect(of(asked({ ...wanted, url: 'any', ref: 'any' }))[0]).toBe('pass')
    expect(of({ uri: 'git+https://git.example/demo.git' })[0]).toBe('pass')
    expect(of(asked('any'))).toEqual(['not-checked', `accepted any source: ${built}`, false])
    expect(
      of({ order: { ...git, source: { ...git.source, ref: null } as never }, ...asked({ ...wanted, ref: null }) })[1],
    ).toBe(built.replace(', ref "main"', ''))
    expect(of({ digest: { gitCommit: '', gitTree: '' }, treeDigest: null, ...asked('any') })[1]).toContain(
      'commit none of https://git.example/demo.git, ref "main", git tree none',
    )
  })

  test('goal: without a provenance it is unchecked, which no verdict passes', () => {
    expect(of({ provenance: null })).toEqual(['not-checked', 'provenance.json cannot be read', true])
  })

  const fails: readonly (readonly [string, Case, string])[] = [
    ['commit', { digest: { gitCommit: 'd'.repeat(40) } }, `yours is the commit ${commit}`],
    ['repository of the provenance', { uri: 'https://x.example/' }, 'yours is the repository https://git.example/'],
    ['repository', asked({ ...wanted, url: 'https://x.example/' }), 'yours is the repository https://x.example/'],
    [
      'repository of the order alone',
      { order: { ...git, source: { kind: 'git', url: 'https://x.example/', ref: 'main' } } },
      'yours is the repository https://git.example/demo.git',
    ],
    ['ref', asked({ ...wanted, ref: 'v2' }), 'yours is the ref "v2"'],
    ['ref than none', asked({ ...wanted, ref: null }), 'yours is the ref none'],
    ['kind', asked(archived), 'the host ordered a repository in place of the archive'],
    ['kind of archive', { order: archive, ...asked(wanted) }, 'the host ordered an archive in place of the repository'],
    ['tree', { order: archive, treeDigest: { sha256: 'd'.repeat(64) } }, `yours is the tree ${tree} in SHA-256`],
    ['tree, none', { order: archive, treeDigest: null }, 'the provenance has no tree id in SHA-256'],
    ['tree in SHA-512', { order: archive, treeDigest: { sha512: tree } }, 'the provenance has no tree id in SHA-256'],
    ['tree in SHA-1', { order: archive, digest: { gitTree: 'd'.repeat(40) } }, `yours is the git tree ${sha1}`],
  ]
  test.each(fails)('goal: another %s fails', (_, given, problem) => {
    expect(of(given)).toEqual(['fail', expect.stringContaining(problem), true])
    expect(of(given)[1]).toContain('; it was built of ')
  })

  test('goal: other builders have the tree in SHA-1 alone, and no order', () => {
    const foreign = { isOwn: false, order: archive, treeDigest: null }
    expect(of(foreign)).toEqual(['pass', `archive, git tree ${sha1}`, true])
    expect(of({ ...foreign, digest: { gitTree: 'x' } })[0]).toBe('fail')
    expect(of({ isOwn: false })[0]).toBe('pass')
    expect(of({ isOwn: false, uri: 'https://x.example/' })[0]).toBe('fail')
  })
})

test('goal: Git LFS pointers fail by name, eight of them are named, and only a waiver accepts them', () => {
  const pointers = (count: number, first: readonly string[]) => ({
    dependencies: [{ name: 'source-tree', annotations: { lfsPointers: { count, first } } }],
  })
  const of = (given: Case) => judge(given).of('lfs-pointers')
  expect(of({})).toEqual(['pass', 'the source has none', true])
  expect(of({ dependencies: [] })).toEqual([
    ...['not-checked', 'this result does not say whether there are any', false],
  ])
  const found = 'the source has Git LFS pointers without their content, 1: "a"'
  expect(of(pointers(1, ['a']))).toEqual(['fail', expect.stringContaining(`${found}; send an archive`), true])
  expect(of({ ...pointers(1, ['a']), asked: { lfsPointers: 'any' } })).toEqual([
    ...['not-checked', `accepted: ${found}`, false],
  ])
  const names = Array.from({ length: 9 }, (_, at) => `f${at}`)
  expect(of(pointers(9, names))[1]).toEqual(expect.stringContaining('"f6", "f7"; send'))
})

// Goal: the compiler is the one that the source pins, and that was fetched.
describe('the compiler', () => {
  const of = (given: Case) => judge(given).of('compiler')
  const pinned = (channel: string) => ({ internal: { pinnedCompiler: { path: 'rust-toolchain', channel } } })
  const rust = 'https://rust.example'
  const options = {
    cargo: {
      package: null,
      bin: null,
      features: [],
      noDefaultFeatures: false,
      profile: null,
      target: null,
      rustMirror: rust,
    },
  }
  const asking = { order: { ...git, options }, asked: { options } }
  const manifest = (annotations: object = { mirror: rust, version: '1.96.0' }) => ({
    ...{ name: 'rust-channel-manifest', uri: `${rust}/m.toml`, digest: { sha256: 'cd'.repeat(32) }, annotations },
  })
  const component = { name: 'rust-component rustc', uri: `${rust}/r.tar.xz`, digest: { sha256: 'ef'.repeat(32) } }
  const fetched = (...dependencies: Dependency[]) => ({ ...asking, dependencies })

  test('goal: what a source pins', () => {
    expect(of({})).toEqual(['pass', 'rustc 1.96.0; the source pins none', true])
    expect(of({ tools: { nix: { version: '2' } } })).toEqual(['pass', 'none that a source can pin', true])
    expect(of({ tools: { go: { version: 'go version go1.24.1' } } })[1]).toBe(
      'go version go1.24.1; the source pins none',
    )
    expect(of(pinned('1.96'))).toEqual(['pass', 'rustc 1.96.0, as rust-toolchain pins it', true])
    expect(of({ internal: { pinnedCompiler: undefined } })).toEqual([
      ...['not-checked', 'rustc 1.96.0; this result does not say what the source pins', false],
    ])
    const found = 'rust-toolchain pins "1.80", and rustc 1.96.0 compiled it'
    expect(of(pinned('1.80'))).toEqual(['fail', `${found}; accept that by --any-toolchain`, true])
    expect(of({ ...pinned('1.80'), asked: { compiler: 'any' } })).toEqual(['not-checked', `accepted: ${found}`, false])
  })

  test('goal: one that was fetched is the compiler, from the mirror that was requested', () => {
    const good = fetched(manifest(), component)
    expect(of({ ...good, ...pinned('1.96.0') })).toEqual([
      'pass',
      `rustc 1.96.0, as rust-toolchain pins it; Rust 1.96.0 fetched from ${rust}: channel manifest SHA-256 ${'cd'.repeat(32)}, rustc SHA-256 ${'ef'.repeat(32)}`,
      true,
    ])
    expect(of({ ...good, ...asking, asked: {} })).toEqual([
      ...['fail', `it came from the mirror ${rust}, which the request does not name`, true],
    ])
    expect(of(fetched(manifest({ mirror: rust, version: '1.95.0' }), component))).toEqual([
      ...['fail', 'rustc 1.96.0 compiled it, and Rust 1.95.0 was fetched', true],
    ])
  })

  test.each<readonly [string, readonly Dependency[]]>([
    ['no manifest', [component]],
    ['two manifests', [manifest(), manifest(), component]],
    ['no mirror', [manifest({ version: '1.96.0' }), component]],
    ['no version', [manifest({ mirror: rust }), component]],
    ['neither', [manifest({}), component]],
    ['no annotations and no components', [{ name: 'rust-channel-manifest' }]],
  ])('goal: components of Rust with %s make the order unreadable', (_, dependencies) => {
    const { bad, of: line } = judge(fetched(...dependencies))
    expect(bad).toEqual(['order', 'request', 'fetch'])
    expect(line('order')[1]).toBe('slsa.json: components of Rust without one manifest, its mirror and version')
  })
})
