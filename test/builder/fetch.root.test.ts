import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import {
  archiveOf,
  fetchedProject,
  gitProject,
  plainProject,
  replyFiles,
  type SourceFiles,
} from '../../scripts/rigs/build/sources.ts'
import { type BuildEnd, cgroup2Root, findRust, startBuildVm, testLimits } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { decodeStatement } from '../../src/attest/receipt/statement.ts'
import { fromBase64Url } from '../../src/base/bytes.ts'
import type { BuildOrder } from '../../src/contract/vm/build-order.ts'
import {
  type FetchServers,
  flakeInputFiles,
  flakeInputHash,
  flakeWithInput,
  flakeWithRepository,
  gitIn,
  makeRepository,
  refusedHost,
  startFetchServers,
} from '../rigs/build/fetch-servers.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const noNix = skipUnless(
  isRoot && Bun.which('nix') !== null && fs.existsSync('/usr/bin/busybox'),
  'needs root, nix and a static busybox',
)
/** For all tests of this file together: they run beside each other. */
const timeoutMs = 1_800_000

async function cloned(
  { fetch }: FetchServers,
  url: string,
  ref: string | null = null,
  change: Partial<BuildOrder> = {},
): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  const end = await vm.build({ source: { kind: 'git', url, ref }, fetch, ...change })
  process.stdout.write(`${url} ${ref ?? ''}: ${Math.round(end.elapsedMs)} ms\n`)
  return end
}

const digestOf = (text: string | null) => new Bun.CryptoHasher('sha256').update(text ?? '').digest('hex')

const provenanceOf = ({ archive }: BuildEnd) =>
  JSON.parse(
    Bun.spawnSync(['tar', '-xzO', '--wildcards', '*/provenance.json'], {
      stdin: archive ?? new Uint8Array(0),
    }).stdout.toString(),
  )

describe.concurrent.skipIf(skipped)('sources from git', () => {
  // Goal: branch, tag, commit and HEAD give git's commit and tree; the network is requested, then done; attributes
  // change no byte.
  test(
    'a repository',
    async () => {
      await using servers = await startFetchServers()
      const odd = {
        '.gitattributes': 'odd.txt text eol=crlf ident filter=lfs\n',
        'odd.txt': '$Id$\nline\n',
      }
      const { url, commit, tree } = makeRepository(servers, 'plain', { ...plainProject, ...odd })
      // The commit's and the tree's lines come before anything is built.
      const linesOf = async (ref: string | null) => {
        await using vm = await startBuildVm()
        const end = await vm.build(
          { source: { kind: 'git', url, ref }, fetch: servers.fetch },
          {
            onProgress: async ({ lines }) => {
              if (lines.some(({ type }) => type === 'detect')) await vm.request({ op: 'cancel' })
            },
          },
        )
        const said = end.lines.map(({ type, msg }) => `${type}: ${msg.split(',', 1)[0]}`)
        expect(said).toEqual(expect.arrayContaining([`fetch: commit ${commit}`, `init: source tree ${tree}`]))
        expect(end.networks).toContain('wanted')
      }
      const [end] = await Promise.all([cloned(servers, url, commit), ...[null, 'main', 'v1'].map(linesOf)])
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks.filter(network => network !== 'unused')).toEqual(['wanted', 'done'])
      const { source } = provenanceOf(end).predicate.buildDefinition.externalParameters
      expect(source.digest).toEqual({ gitCommit: commit, gitTree: tree })
      expect(source.uri).toContain(url)
    },
    timeoutMs,
  )

  // Goal: each trick of a repository, a server or a URL ends as what it is, and its message says why.
  test(
    'hostile repositories',
    async () => {
      await using servers = await startFetchServers()
      const plain = makeRepository(servers, 'plain', plainProject)
      const link = makeRepository(servers, 'link', plainProject, dir => {
        fs.symlinkSync('../../../etc/passwd', join(dir, 'passwd'))
        gitIn(dir)('add', '--all')
      })
      /** A tree whose entry git itself would never add. */
      const forged = (name: string, entry: string) =>
        makeRepository(servers, name, plainProject, dir => {
          const git = gitIn(dir)
          const blob = git('hash-object', '-w', 'src/main.rs')
          const body = Buffer.concat([Buffer.from(`100644 ${entry}\0`), Buffer.from(blob, 'hex')])
          fs.writeFileSync(join(dir, '.git/body'), body)
          const tree = git('hash-object', '-w', '-t', 'tree', '--literally', '.git/body')
          const commit = git('commit-tree', '-m', 'one', tree)
          git('update-ref', 'refs/heads/main', commit)
        })
      const bomb = makeRepository(servers, 'bomb', plainProject, dir => {
        const git = gitIn(dir)
        let tree = git('rev-parse', `${git('write-tree')}:src`)
        for (let depth = 0; depth < 6; depth += 1) {
          const lines = Array.from({ length: 10 }, (_, at) => `040000 tree ${tree}\td${at}`).join('\n')
          tree = Bun.spawnSync(['git', '-C', dir, 'mktree'], { stdin: Buffer.from(`${lines}\n`) })
            .stdout.toString()
            .trim()
        }
        git('update-ref', 'refs/heads/main', git('commit-tree', '-m', 'one', tree))
      })
      const { limits } = { limits: { ...testLimits, fetchBytes: 16 * 1024 ** 2, sourceBytes: 16 * 1024 ** 2 } }
      const cases: [string, string | null, string, RegExp][] = [
        [link.url, null, 'source_invalid', /leads out/],
        [forged('dots', '..').url, null, 'source_invalid', /hasDotdot/],
        [forged('git', '.git').url, null, 'source_invalid', /hasDotgit/],
        [forged('slash', 'a/b').url, null, 'source_invalid', /fullPathname/],
        [bomb.url, null, 'limit_exceeded', /on disk/],
        [plain.url, 'nothing', 'source_unreachable', /couldn't find remote ref/],
        [plain.url, '00'.repeat(20), 'source_unreachable', /not our ref/],
        [plain.url.replace('plain', 'none'), null, 'source_unreachable', /not found/],
        [plain.url.replace('plain.git', 'redirect/a.git'), null, 'source_unreachable', /302|redirect/],
        [`https://${refusedHost}/plain.git`, null, 'source_unreachable', /403/],
        [plain.url.replace('https:', 'http:'), null, 'source_invalid', /https/],
        ['file:///etc', null, 'source_invalid', /https/],
        [plain.url, '--upload-pack=id', 'source_invalid', /repo_ref/],
      ]
      await Promise.all(
        cases.map(async ([url, ref, errorType, why]) => {
          const { result } = await cloned(servers, url, ref, { limits })
          expect([url, ref, result]).toEqual([
            url,
            ref,
            expect.objectContaining({ status: 'failed', errorType, error: expect.stringMatching(why) }),
          ])
        }),
      )
      // No redirect is followed.
      expect(new Set(servers.connected)).toEqual(new Set([`${new URL(plain.url).hostname}:443`, `${refusedHost}:443`]))
    },
    timeoutMs,
  )

  // Goal: a host cannot open the fetch with its own authority or mirror: the VM refuses such an order and waits for a
  // true one.
  test(
    'an authority, and a mirror, that the request does not name',
    async () => {
      await using servers = await startFetchServers()
      const { url, commit } = makeRepository(servers, 'plain', plainProject)
      const source = { kind: 'git', url, ref: null } as const
      const { fetch } = servers
      const none = { caSha256: null, cratesMirror: null }
      {
        await using vm = await startBuildVm()
        for (const [accepts, problem] of [
          [none, 'build.order.fetch.ca: '],
          [{ caSha256: '00'.repeat(32), cratesMirror: fetch.cratesMirror }, 'build.order.fetch.ca: '],
          [{ caSha256: digestOf(fetch.ca), cratesMirror: null }, 'build.order.fetch.cratesMirror: '],
        ] as const) {
          await expect(vm.build({ source, fetch, accepts })).rejects.toThrow(problem)
        }
        // Without them it obeys, and does not trust the git host.
        const alone = { ...fetch, ca: null, cratesMirror: null }
        const end = await vm.build({ source, fetch: alone, accepts: none })
        expect(end.result).toMatchObject({ status: 'failed', errorType: 'source_unreachable' })
      }
      await using other = await startBuildVm()
      const good = await other.build({ source, fetch })
      expect(good.result).toMatchObject({ status: 'ok' })
      expect(provenanceOf(good).predicate.buildDefinition.externalParameters.source.digest.gitCommit).toBe(commit)
      const statement = decodeStatement(fromBase64Url(good.evidence.dispatch?.statement ?? '') ?? new Uint8Array(0))
      expect(statement).toMatchObject({
        kind: 'build-dispatch',
        fetchProxy: fetch.proxy,
        fetchMirror: fetch.cratesMirror,
        fetchAuthoritiesDigest: new Uint8Array(Buffer.from(digestOf(fetch.ca), 'hex')),
      })
    },
    timeoutMs,
  )

  // Goal: a service that fetches nothing says so, before anything is tried.
  test(
    'without a network',
    async () => {
      await using servers = await startFetchServers()
      const end = await cloned(servers, 'https://git.strongroom.test/plain.git', null, { fetch: null })
      expect(end.result).toMatchObject({ errorType: 'source_unreachable' })
      expect(end.networks).not.toContain('wanted')
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(skipped)('packages from a registry', () => {
  // Goal: a registry that gives other bytes than the lock says is found out; so is one that cannot be reached.
  test(
    'another package than the locked one',
    async () => {
      await using servers = await startFetchServers()
      servers.crate = Uint8Array.from([...servers.crate, 0])
      const resultOf = async (fetch: FetchServers['fetch']) => {
        await using vm = await startBuildVm()
        return (await vm.build({ archive: archiveOf(fetchedProject()), fetch })).result
      }
      const refused = { ...servers.fetch, cratesMirror: `sparse+https://${refusedHost}/index/` }
      expect(await Promise.all([resultOf(servers.fetch), resultOf(refused)])).toMatchObject([
        { status: 'failed', errorType: 'checksum_mismatch' },
        { errorType: 'source_unreachable' },
      ])
    },
    timeoutMs,
  )

  // Goal: crates of the lock come from the mirror through the proxy, each with its checksum, and build without the
  // network. While there is one, no program that the source names runs, and its settings count for nothing.
  test(
    'settings of cargo in the source',
    async () => {
      await using servers = await startFetchServers()
      await using vm = await startBuildVm()
      const config = `[registry]\nglobal-credential-providers = ["/build/source/run"]\n[http]\nproxy = "127.0.0.1:1"\ncainfo = "/none"\n[net]\noffline = true\n[build]\nrustc = "/build/source/run"\nrustc-wrapper = "/build/source/run"\n`
      const files = {
        ...fetchedProject(),
        '.cargo/config.toml': config,
        run: '#!/bin/sh\necho RAN "$@" >&2\nexec rustc "$@"\n',
      }
      const end = await vm.build({ archive: archiveOf(files), fetch: servers.fetch })
      const before = end.lines.findIndex(line => line.msg.includes('the network is removed'))
      expect(before).toBeGreaterThan(0)
      const wanted = end.lines.findIndex(line => line.msg.startsWith('packages from'))
      expect(wanted).toBeGreaterThan(0)
      // The build, too, is with the compiler that the evidence names.
      expect(end.lines.filter(line => line.msg.includes('RAN'))).toEqual([])
      expect(end.lines.map(line => line.msg)).toContain('each fetched package matches its checksum in Cargo.lock')
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks).toEqual(['unused', 'wanted', 'done'])
      expect(new Set(servers.connected)).toEqual(new Set(['crates.strongroom.test:443']))
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(skipped)('fetched packages while the source builds', () => {
  // Goal: a build script cannot exchange a package that the evidence names by the registry's checksum: neither its
  // files nor a directory around them gives way. A file that its archive hides from other users can be read.
  test(
    'are out of its reach',
    async () => {
      await using servers = await startFetchServers()
      await using vm = await startBuildVm()
      const script = `fn main() {
        for place in ["registry", "registry/src", "registry/cache", "registry/index"] {
          let path = format!("/build/cargo/{place}");
          if std::fs::rename(&path, "/build/cargo/moved").is_ok() { panic!("{path} was moved") }
        }
        if std::fs::rename("/build/cargo", "/build/moved").is_ok() { panic!("cargo was moved") }
        for registry in std::fs::read_dir("/build/cargo/registry/src").unwrap() {
          let file = registry.unwrap().path().join("answer-0.1.0/src/lib.rs");
          if std::fs::write(&file, "pub fn answer() -> u32 { 666 }").is_ok() { panic!("written") }
          println!("cargo:warning=SEEN {}", file.exists());
        }
      }`
      const files = { ...fetchedProject(), 'build.rs': script }
      const end = await vm.build({ archive: archiveOf(files), fetch: servers.fetch })
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.lines.filter(({ msg }) => msg.includes('SEEN true'))).not.toEqual([])
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(skipped)('a package from a git repository', () => {
  // Goal: the locked commit comes through the proxy, builds without the network, and is in the provenance; a missing
  // commit is reported.
  test(
    'by its commit',
    async () => {
      await using servers = await startFetchServers()
      const repository = makeRepository(servers, 'reply', replyFiles)
      const built = async (from: typeof repository) => {
        await using vm = await startBuildVm()
        return await vm.build({ archive: archiveOf(gitProject(from)), fetch: servers.fetch, reproduce: true })
      }
      const lost = { ...repository, commit: '0'.repeat(40) }
      const [end, other] = await Promise.all([built(repository), built(lost)])
      expect(other.result).toMatchObject({ status: 'failed', errorType: 'source_unreachable' })
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks).toEqual(['unused', 'wanted', 'done'])
      expect(end.lines.map(line => line.msg)).toContain('uses: reproducible')
      expect(new Set(servers.connected)).toEqual(new Set(['git', 'crates'].map(name => `${name}.strongroom.test:443`)))
      const { resolvedDependencies } = provenanceOf(end).predicate.buildDefinition
      expect(resolvedDependencies).toContainEqual({
        digest: { gitCommit: repository.commit },
        name: 'reply',
        uri: `pkg:cargo/reply@0.1.0?vcs_url=${encodeURIComponent(`git+${repository.url}@${repository.commit}`).replaceAll('%3A', ':')}`,
      })
    },
    timeoutMs,
  )

  // Goal: what a dependency's repository names beside itself leads nowhere.
  test(
    'with a submodule elsewhere, and of a host that is not allowed',
    async () => {
      await using servers = await startFetchServers()
      const hostile = makeRepository(servers, 'hostile', replyFiles, dir => {
        fs.writeFileSync(join(dir, '.gitmodules'), '[submodule "x"]\n\tpath = x\n\turl = file:///etc\n')
        gitIn(dir)('add', '--all')
        gitIn(dir)('update-index', '--add', '--cacheinfo', `160000,${'1'.repeat(40)},x`)
      })
      const refused = { url: `https://${refusedHost}/reply.git`, commit: hostile.commit }
      const isRefused = async (project: { url: string; commit: string }, why: RegExp) => {
        await using vm = await startBuildVm()
        const end = await vm.build({ archive: archiveOf(gitProject(project)), fetch: servers.fetch })
        expect(end.result).toMatchObject({
          status: 'failed',
          errorType: 'source_unreachable',
          error: expect.stringMatching(why),
        })
      }
      await Promise.all([isRefused(hostile, /submodule/), isRefused(refused, /403/)])
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(noNix)('inputs of a flake', () => {
  // Goal: git uses the proxy, the authorities and the rules of the build's own clone; another commit or hash than the
  // locked is detected.
  test(
    'a git repository',
    async () => {
      await using servers = await startFetchServers()
      const repository = makeRepository(servers, 'input', flakeInputFiles)
      const built = async (files: SourceFiles) => {
        await using vm = await startBuildVm()
        return await vm.build({ archive: archiveOf(files), fetch: servers.fetch })
      }
      const end = await built(flakeWithRepository(repository, flakeInputHash()))
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks).toEqual(['unused', 'wanted', 'done'])
      expect(new Set(servers.connected)).toEqual(new Set([`${new URL(repository.url).hostname}:443`]))
      const { flakeInputs } = provenanceOf(end).predicate.buildDefinition.internalParameters
      expect(flakeInputs).toEqual([{ name: 'input', narHash: flakeInputHash() }])
      const other = flakeWithRepository(repository, `sha256-${'A'.repeat(43)}=`)
      const lost = flakeWithRepository({ ...repository, commit: '0'.repeat(40) }, flakeInputHash())
      const [byFile, bySsh] = ['file:///etc', 'ssh://git.strongroom.test/input.git'].map(url =>
        flakeWithRepository({ ...repository, url }, flakeInputHash()),
      )
      const ends = await Promise.all([other, lost, byFile ?? {}, bySsh ?? {}].map(built))
      expect(ends.map(({ result }) => result)).toMatchObject([
        { status: 'failed', errorType: 'checksum_mismatch' },
        { status: 'failed', errorType: 'source_unreachable' },
        { status: 'failed', errorType: 'source_unreachable' },
        { status: 'failed', errorType: 'source_unreachable' },
      ])
    },
    timeoutMs,
  )

  // Goal: an input comes through the proxy with its narHash and is there for a build without a network; another than
  // the locked is detected.
  test(
    'a tarball',
    async () => {
      await using servers = await startFetchServers()
      const built = async (narHash: string) => {
        await using vm = await startBuildVm()
        return await vm.build({ archive: archiveOf(flakeWithInput(narHash)), fetch: servers.fetch })
      }
      const end = await built(flakeInputHash())
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks).toEqual(['unused', 'wanted', 'done'])
      expect(
        Bun.spawnSync(['tar', '-xzO', '--wildcards', '*/artifacts/hello'], {
          stdin: end.archive ?? new Uint8Array(0),
        }).stdout.toString(),
      ).toBe('from elsewhere\n')
      const other = await built(`sha256-${'A'.repeat(43)}=`)
      expect(other.result).toMatchObject({ status: 'failed', errorType: 'checksum_mismatch' })
    },
    timeoutMs,
  )
})
