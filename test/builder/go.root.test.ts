// Goal: a project of Go is built offline of modules whose files equal go.sum, and the evidence names what go compiled,
// whatever go.mod, vendor/ and a proxy say. A real go, and a module proxy on loopback.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { gzipSync } from 'node:zlib'
import { tarOf } from '../../scripts/rigs/archive-bytes.ts'
import { goTools } from '../../scripts/rigs/build/go-tools.ts'
import { archiveOf, type SourceFiles } from '../../scripts/rigs/build/sources.ts'
import { cgroup2Root, startBuildVm, testLimits } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import type { BuildOrder } from '../../src/contract/vm/build-order.ts'
import { filesOf } from '../rigs/build/built.ts'
import { cratesHost, refusedHost, startFetchServers } from '../rigs/build/fetch-servers.ts'
import { type GoModuleFiles, goSumOf, hexH1, serveModule } from '../rigs/build/go-modules.ts'

const noGo = skipUnless(userInfo().uid === 0 && cgroup2Root() !== null, 'needs root and cgroup2')
const timeoutMs = 1_800_000

const answer: GoModuleFiles = {
  path: 'example.com/Acme/answer',
  version: 'v1.2.0',
  files: {
    'go.mod': 'module example.com/Acme/answer\n\ngo 1.19\n\nrequire example.com/base v0.1.0\n',
    'answer.go': 'package answer\n\nimport "example.com/base"\n\nfunc Answer() int { return base.Base() * 2 }\n',
    // Not compiled, and part of the hash.
    'unused/unused.go': 'package unused\n',
  },
}
const base: GoModuleFiles = {
  path: 'example.com/base',
  version: 'v0.1.0',
  files: {
    'go.mod': 'module example.com/base\n\ngo 1.19\n',
    'base.go': 'package base\n\nfunc Base() int { return 21 }\n',
  },
}
const modules = [answer, base]

const goMod = `module example.com/tool/v2

go 1.19

require example.com/Acme/answer v1.2.0

require example.com/base v0.1.0 // indirect
`
const main = 'package main\n\nimport "example.com/Acme/answer"\n\nfunc main() { println("answer", answer.Answer()) }\n'
const project: SourceFiles = { 'go.mod': goMod, 'go.sum': goSumOf(modules), 'main.go': main }
const vendored: SourceFiles = {
  ...project,
  'vendor/modules.txt':
    '# example.com/Acme/answer v1.2.0\n## explicit; go 1.19\nexample.com/Acme/answer\n# example.com/base v0.1.0\n## explicit; go 1.19\nexample.com/base\n',
  'vendor/example.com/Acme/answer/answer.go': answer.files['answer.go'] ?? '',
  'vendor/example.com/base/base.go': 'package base\n\nfunc Base() int { return 333 }\n',
}

type Listed = readonly [name: string, origin: string, place: string]
type Built = {
  readonly pinned: object | null
  readonly packages: readonly Listed[]
  readonly output: string
  readonly artifacts: readonly string[]
}
type Descriptor = { name: string; uri?: string; digest: object; annotations?: Record<string, unknown> }
type Servers = Awaited<ReturnType<typeof startFetchServers>>

const goOptions = { go: { proxy: `https://${cratesHost}/go` } }

type Change = Partial<BuildOrder> & { readonly archive?: Uint8Array }

async function end(files: SourceFiles, change: Change) {
  await using vm = await startBuildVm({ goTools: await goTools() })
  // Only the outcome is under test, not how fast a busy machine is.
  const limits = { ...testLimits, fetchSeconds: 900, buildSeconds: 900 }
  return await vm.build({ archive: archiveOf(files), limits, ...change })
}

/** Modules of the evidence, and the program's output; or the failure. */
async function built(files: SourceFiles, change: Change = {}): Promise<Built | string> {
  const ended = await end(files, change)
  // Each of two builds gives the same bytes.
  if (change.reproduce === true && ended.result.status === 'ok')
    expect(ended.lines.map(({ msg }) => msg)).toContain('tool: reproducible')
  if (ended.result.status === 'failed') return `${ended.result.errorType}: ${ended.result.error}`
  const found = filesOf(ended)
  const json = (path: string) => JSON.parse(Buffer.from(found.get(path) ?? []).toString('utf8'))
  const { resolvedDependencies, internalParameters } = json('attestations/slsa.json').predicate.buildDefinition
  const all = (resolvedDependencies as Descriptor[]).filter(({ uri }) => uri?.startsWith('pkg:golang/') === true)
  const sbom: { purl: string; properties: { name: string; value: string }[] }[] =
    json('attestations/sbom.cdx.json').components
  expect(sbom.map(({ purl, properties }) => [purl, properties[0]?.value])).toEqual(
    all.map(({ uri, annotations }) => [uri ?? '', String(annotations?.origin)]),
  )
  const family: Descriptor[] = json('provenance.json').predicate.buildDefinition.resolvedDependencies
  expect(family.map(({ uri }) => uri).filter(uri => uri?.startsWith('pkg:golang/'))).toEqual(
    all.filter(({ annotations }) => annotations?.origin !== 'path').map(({ uri }) => uri),
  )
  expect(internalParameters.environment).toMatchObject({
    GOFLAGS: expect.stringContaining('-trimpath'),
    GOPROXY: 'off',
  })
  const artifacts = [...found.keys()].filter(path => path.startsWith('artifacts/'))
  return {
    packages: all.map(({ name, uri = '', annotations }) => [
      name,
      String(annotations?.origin),
      decodeURIComponent(uri.slice(uri.indexOf('?') + 1)),
    ]),
    output: outputOf(found.get(artifacts[0] ?? '') ?? new Uint8Array(0)),
    pinned: internalParameters.pinnedCompiler,
    artifacts: artifacts.map(path => path.slice('artifacts/'.length)),
  }
}

function outputOf(program: Uint8Array): string {
  const path = `/tmp/strongroom-go-${crypto.randomUUID()}`
  try {
    Bun.spawnSync(['install', '--mode=0755', '/dev/stdin', path], { stdin: program })
    return Bun.spawnSync([path]).stderr.toString().trim()
  } finally {
    Bun.spawnSync(['rm', path])
  }
}

const serve = (servers: Servers, list: readonly GoModuleFiles[] = modules) => {
  for (const module of list) serveModule(servers.files, module)
  return { fetch: servers.fetch, options: goOptions }
}
const own: Listed = ['example.com/tool/v2', 'path', 'download_url=file:.']

describe.skipIf(noGo)('projects of Go', () => {
  // Goal: fetched modules are compiled, and the evidence has their hashes of go.sum.
  test(
    'modules from a proxy, with the hashes of go.sum',
    async () => {
      await using servers = await startFetchServers()
      const order = { ...serve(servers), reproduce: true }
      expect(await built(project, order)).toEqual({
        artifacts: ['tool'],
        output: 'answer 42',
        packages: [
          ['example.com/Acme/answer', 'fetched', `checksum=h1:${hexH1(answer)}`],
          ['example.com/base', 'fetched', `checksum=h1:${hexH1(base)}`],
          own,
        ],
        pinned: null,
      })
      expect(servers.connected.every(name => name === `${cratesHost}:443`)).toBe(true)
    },
    timeoutMs,
  )

  // Goal: a vendor directory is of the source, and a workspace and go.env mean nothing. A newer toolchain line fails
  // unless the request waives it.
  test(
    'a vendor directory that differs from go.sum, beside settings that go would take',
    async () => {
      const source = {
        ...vendored,
        'main.go': 'package tool\n',
        'cmd/one/main.go': main,
        'go.mod': goMod.replace('go 1.19\n', 'go 1.19\n\ntoolchain go1.98.7\n'),
        'go.work': 'go 1.19\n\nuse .\n\nreplace example.com/base => ./evil\n',
        'go.env': 'GOFLAGS=-mod=mod\n',
      }
      expect(await built(source, { waivers: ['allow_lfs_pointers'] })).toMatch(
        /^source_invalid: go\.mod pins "go1\.98\.7", and this builder has go version go1\..*with any_toolchain/,
      )
      expect(await built(source, { waivers: ['any_toolchain'] })).toEqual({
        artifacts: ['one'],
        output: 'answer 666',
        packages: [
          ['example.com/Acme/answer', 'vendored', 'download_url=file:vendor/example.com/Acme/answer'],
          ['example.com/base', 'vendored', 'download_url=file:vendor/example.com/base'],
          own,
        ],
        pinned: { path: 'go.mod', channel: 'go1.98.7' },
      })
    },
    timeoutMs,
  )

  // Goal: code that replaces a module never stands under the hash of that module.
  test(
    'replace of go.mod: a directory or another module is never the module that it replaces',
    async () => {
      await using servers = await startFetchServers()
      const fork: GoModuleFiles = {
        path: 'example.com/fork',
        version: 'v0.9.0',
        files: { ...answer.files, 'go.mod': answer.files['go.mod']?.replace('Acme/answer', 'fork') ?? '' },
      }
      const order = serve(servers, [...modules, fork])
      const replaced = {
        ...project,
        'go.mod': `${goMod}\nreplace example.com/base => ./mine\n\nreplace example.com/Acme/answer v1.2.0 => example.com/fork v0.9.0\n`,
        'go.sum': goSumOf([fork]),
        'mine/go.mod': 'module example.com/base\n\ngo 1.19\n',
        'mine/base.go': 'package base\n\nfunc Base() int { return 4 }\n',
      }
      expect(await built(replaced, order)).toMatchObject({
        output: 'answer 8',
        packages: [
          ['example.com/base', 'replaced', 'download_url=file:mine'],
          ['example.com/fork', 'replaced', `checksum=h1:${hexH1(fork)}`],
          own,
        ],
      })
      // A directory outside of the source, which exists in the builder.
      const outside = {
        ...vendored,
        'vendor/modules.txt': '',
        'go.mod': `${goMod}\nreplace example.com/base => ../../usr/share\n`,
      }
      expect(await built(outside)).toMatch(/^(?:build_failed|source_invalid): /)
    },
    timeoutMs,
  )

  // Goal: other bytes than go.sum has, or a missing hash, fail, and the message says which.
  test(
    'a proxy that serves something else, and hashes that are missing',
    async () => {
      await using servers = await startFetchServers()
      const evil = { ...base, files: { ...base.files, 'base.go': 'package base\n\nfunc Base() int { return 1 }\n' } }
      expect(await built(project, serve(servers, [answer, evil]))).toMatch(/^checksum_mismatch: /)
      const odd = { ...base, files: { ...base.files, 'go.mod': 'module example.com/base\n\ngo 1.18\n' } }
      expect(await built(project, serve(servers, [answer, odd]))).toMatch(/^checksum_mismatch: /)
      const order = serve(servers)
      expect(await built({ ...project, 'go.sum': goSumOf([answer]) }, order)).toMatch(
        /^lock_missing: go\.sum lacks a module/,
      )
      const { 'go.sum': _, ...without } = project
      expect(await built(without, order)).toMatch(/^lock_missing: go\.sum lacks a module/)
      expect(await built({ ...project, 'go.sum': 'x y z\n' }, order)).toMatch(
        /^source_invalid: go\.sum: "x y z" is not a module/,
      )
      expect(await built(project)).toMatch(/^source_unreachable: a module cannot be fetched; run `go mod vendor`/)
      expect(await built(project, { fetch: servers.fetch })).toMatch(
        /^source_unreachable: .* does not set go_proxy: set it to a module proxy/,
      )
      const refused = { ...order, options: { go: { proxy: `https://${refusedHost}/go` } } }
      expect(await built(project, refused)).toMatch(/^source_unreachable: a module cannot be fetched; .*operator/)
    },
    timeoutMs,
  )

  // Goal: a build reads nothing of a proxy but what equals go.sum, and no module that the evidence does not name.
  test(
    'C code that includes what a proxy sent beside the modules',
    async () => {
      await using servers = await startFetchServers()
      // Go looks into it for the package of a longer path, and compiles nothing of it.
      const parent: GoModuleFiles = {
        path: 'example.com/Acme',
        version: 'v1.0.0',
        files: { 'go.mod': 'module example.com/Acme\n\ngo 1.19\n', 'blob.bin': 'blob' },
      }
      const order = serve(servers, [...modules, parent])
      const including = (path: string): SourceFiles => ({
        'go.mod': `${goMod}\nrequire example.com/Acme v1.0.0\n`,
        'go.sum': goSumOf([...modules, parent]),
        'main.go': main.replace('import', 'import "C"\n\nimport'),
        'blob.c': path === '' ? '' : `__asm__(".incbin \\"/build/go/pkg/mod/${path}\\"");\n`,
      })
      const named = 'cache/download/example.com/base/@v/v0.1.0'
      expect(await built(including('example.com/base@v0.1.0/base.go'), order)).toMatchObject({
        output: 'answer 42',
        packages: [
          ['example.com/Acme/answer', 'fetched', `checksum=h1:${hexH1(answer)}`],
          ['example.com/base', 'fetched', `checksum=h1:${hexH1(base)}`],
          own,
        ],
      })
      for (const path of [`${named}.zip`, `${named}.info`, 'example.com/!acme@v1.0.0/blob.bin']) {
        expect([path, await built(including(path), order)]).toEqual([
          path,
          expect.stringMatching(/^build_failed: .*file not found/s),
        ])
      }
    },
    timeoutMs,
  )

  // Goal: a replacement in a vendor directory has its own name.
  test(
    'a vendor directory whose module another one replaces',
    async () => {
      const at = '# example.com/base v0.1.0 => example.com/evil v1.9.9'
      const source = {
        ...vendored,
        'go.mod': `${goMod}\nreplace example.com/base => example.com/evil v1.9.9\n`,
        'vendor/modules.txt': `${(vendored['vendor/modules.txt'] ?? '').replace('# example.com/base v0.1.0', at)}# example.com/base => example.com/evil v1.9.9\n`,
      }
      expect(await built(source)).toMatchObject({
        output: 'answer 666',
        packages: [
          ['example.com/Acme/answer', 'vendored', 'download_url=file:vendor/example.com/Acme/answer'],
          ['example.com/evil', 'replaced', 'download_url=file:vendor/example.com/base'],
          own,
        ],
      })
    },
    timeoutMs,
  )

  // Goal: the recorded lock is the one that go reads.
  test(
    'a go.sum or a list of vendored modules that is a link',
    async () => {
      for (const name of ['go.sum', 'vendor/modules.txt']) {
        const { [name]: content = '', ...others } = vendored
        const files = Object.entries(others).map(([path, text]) => ({ name: path, content: text }))
        const linked = [
          { name: 'other', content },
          { name, type: '2', link: `${name.includes('/') ? '../' : ''}other` },
        ]
        const archive = gzipSync(tarOf([...files, ...linked]))
        expect(await built(vendored, { archive })).toBe(`source_invalid: ${name}: not a regular file`)
      }
    },
    timeoutMs,
  )

  // Goal: the log of a build with Go is bounded as every other one, and the answer to go list is no part of it.
  test(
    'a limit for the log that is less than the list of packages',
    async () => {
      const limits = { ...testLimits, fetchSeconds: 900, buildSeconds: 900, logBytes: 600 }
      expect(await built(vendored, { limits })).toMatchObject({ output: 'answer 666' })
      const wrong = Array.from({ length: 9 }, (_, at) => `var a${at} = nothing${'x'.repeat(100)}${at}\n`).join('')
      expect(await built({ ...vendored, 'main.go': `${main}${wrong}` }, { limits })).toBe(
        'limit_exceeded: go-build-1: printed more than 600 bytes',
      )
    },
    timeoutMs,
  )

  // Goal: each mistake of a project ends in its own message.
  test(
    'a newer Go, two programs of one name, no program, a stale vendor directory, an error of the compiler',
    async () => {
      const newer = { ...vendored, 'go.mod': goMod.replace('go 1.19', 'go 1.99') }
      expect(await built(newer)).toMatch(/^source_invalid: the project needs a newer Go than this builder's; .*1\.99/s)
      const program = 'package main\n\nfunc main() {}\n'
      const same = { 'go.mod': 'module example.com/tool\n', 'a/x/main.go': program, 'b/x/main.go': program }
      expect(await built(same)).toMatch(
        /^build_failed: two packages produce the same program, x: example\.com\/tool\/a\/x and/,
      )
      const library = { 'go.mod': 'module example.com/tool\n', 'a.go': 'package tool\n' }
      expect(await built(library)).toMatch(/^no_artifacts: .*package main/)
      const stale = { ...vendored, 'vendor/modules.txt': '# example.com/base v0.1.0\n## explicit\nexample.com/base\n' }
      expect(await built(stale)).toMatch(/^source_invalid: vendor\/modules\.txt does not match go\.mod/)
      expect(await built({ ...vendored, 'main.go': 'package main\n\nfunc main() { nothing() }\n' })).toMatch(
        /^build_failed: .*undefined: nothing/s,
      )
    },
    timeoutMs,
  )
})
