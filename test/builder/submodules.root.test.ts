import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { plainProject, replyFiles } from '../../scripts/rigs/build/sources.ts'
import { type BuildEnd, cgroup2Root, findRust, startBuildVm } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import {
  type FetchServers,
  gitHost,
  gitIn,
  makeRepository,
  refusedHost,
  startFetchServers,
} from '../rigs/build/fetch-servers.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const timeoutMs = 600_000

async function cloned({ fetch }: FetchServers, url: string): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  const end = await vm.build({ source: { kind: 'git', url, ref: null }, fetch })
  process.stdout.write(`${url}: ${Math.round(end.elapsedMs)} ms\n`)
  return end
}

const provenanceOf = ({ archive }: BuildEnd) =>
  JSON.parse(
    Bun.spawnSync(['tar', '-xzO', '--wildcards', '*/provenance.json'], {
      stdin: archive ?? new Uint8Array(0),
    }).stdout.toString(),
  )

type Pinned = { readonly url: string; readonly commit: string }

/** Writes .gitmodules and the entry of each submodule, by its path. */
function addSubmodules(dir: string, entries: Readonly<Record<string, Pinned>>): void {
  const sections = Object.entries(entries).map(
    ([path, { url }]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`,
  )
  fs.writeFileSync(join(dir, '.gitmodules'), sections.join(''))
  gitIn(dir)('add', '--all')
  for (const [path, { commit }] of Object.entries(entries))
    gitIn(dir)('update-index', '--add', '--cacheinfo', `160000,${commit},${path}`)
}

describe.skipIf(skipped)('submodules of a source from git', () => {
  // Goal: a submodule, and one within it, is fetched by its commit; the build reads its files, and the evidence names
  // each commit. Too many within each other are refused.
  test(
    'are fetched',
    async () => {
      await using servers = await startFetchServers()
      const text = makeRepository(servers, 'text', { 'words.txt': 'from a submodule' })
      const inner = makeRepository(servers, 'inner', replyFiles, dir => addSubmodules(dir, { 'deep/text': text }))
      const main = 'fn main() { print!("{}", include_str!("../libs/inner/deep/text/words.txt")); }\n'
      const outer = makeRepository(servers, 'outer', { ...plainProject, 'src/main.rs': main }, dir =>
        addSubmodules(dir, { 'libs/inner': inner }),
      )
      const end = await cloned(servers, outer.url)
      expect(end.result).toMatchObject({ status: 'ok' })
      const dependencies: { name: string; uri: string; digest: object }[] =
        provenanceOf(end).predicate.buildDefinition.resolvedDependencies
      expect(dependencies.filter(({ name }) => name.startsWith('submodule '))).toEqual([
        { name: 'submodule libs/inner', uri: `git+${inner.url}`, digest: { gitCommit: inner.commit } },
        { name: 'submodule libs/inner/deep/text', uri: `git+${text.url}`, digest: { gitCommit: text.commit } },
      ])
      // Five within each other are one too many.
      let last = text
      for (const name of ['chain-a', 'chain-b', 'chain-c', 'chain-d', 'chain-e']) {
        const next = last
        last = makeRepository(servers, name, plainProject, dir => addSubmodules(dir, { x: next }))
      }
      const words = 'submodule "x/x/x/x/x": a clone fetches at most 32 submodules, 4 within each other'
      expect((await cloned(servers, last.url)).result).toMatchObject({
        status: 'failed',
        errorType: 'source_invalid',
        error: expect.stringContaining(words),
      })
    },
    timeoutMs,
  )

  // Goal: an address that is not https, or that the operator does not allow, is refused by the submodule's name; a path
  // leads nowhere else; no other host is reached.
  test(
    'are refused',
    async () => {
      await using servers = await startFetchServers()
      const plain = makeRepository(servers, 'plain', plainProject)
      const cases = [
        ['file', 'file:///etc', 'x', 'source_invalid', /submodule "x": its url "file:.*" is not https/],
        ['ssh', 'git@git.example:x.git', 'x', 'source_invalid', /submodule "x": .* is not https/],
        ['beside', '../plain.git', 'x', 'source_invalid', /submodule "x": .* is relative/],
        ['out', plain.url, '../x', 'source_invalid', /submodule "\.\.\/x": not a relative path inside/],
        ['unnamed', plain.url, 'y', 'source_invalid', /a submodule is missing in \.gitmodules/],
        ['lost', plain.url.replace('plain', 'none'), 'x', 'source_unreachable', /submodule "x": git fetch of .*none/],
        [
          'refused',
          `https://${refusedHost}/plain.git`,
          'x',
          'source_unreachable',
          /submodule "x": git fetch of [\s\S]*403[\s\S]*ask the operator to allow its host/,
        ],
      ] as const
      for (const [name, address, path, errorType, why] of cases) {
        const { url } = makeRepository(servers, name, plainProject, dir => {
          fs.writeFileSync(join(dir, '.gitmodules'), `[submodule "x"]\n\tpath = ${path}\n\turl = ${address}\n`)
          gitIn(dir)('add', '--all')
          gitIn(dir)('update-index', '--add', '--cacheinfo', `160000,${plain.commit},x`)
        })
        const { result } = await cloned(servers, url)
        expect([name, result]).toEqual([
          name,
          expect.objectContaining({ status: 'failed', errorType, error: expect.stringMatching(why) }),
        ])
      }
      expect(new Set(servers.connected)).toEqual(new Set([`${gitHost}:443`, `${refusedHost}:443`]))
    },
    timeoutMs,
  )
})
