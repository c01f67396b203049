// Goal: the output that a request names is built, from caches that the request names and by hashes of the source. No
// program of the source runs before, and everything that came is in the evidence. Real Nix, a real cache.

import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { archiveOf, flakeProject, type SourceFiles } from '../../scripts/rigs/build/sources.ts'
import { type BuildEnd, cgroup2Root, startBuildVm } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import type { NixOptions } from '../../src/contract/http/build-options.ts'
import { filesOf } from '../rigs/build/built.ts'
import { type FetchServers, flakeInputHash, gitHost, startFetchServers } from '../rigs/build/fetch-servers.ts'
import { fixedOutputs, flakeOnStdenv, makeNixCache, type NixCache, narOf } from '../rigs/build/nix-cache.ts'

const skipped = skipUnless(
  userInfo().uid === 0 && Bun.which('nix') !== null && fs.existsSync('/usr/bin/busybox') && cgroup2Root() !== null,
  'needs root, nix, a static busybox and cgroup2',
)
/** For all tests of this file together: they run beside each other. */
const timeoutMs = 1_800_000

async function built(servers: FetchServers, files: SourceFiles, caches: NixOptions['caches']): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  const nix = { output: null, caches }
  return await vm.build({ archive: archiveOf(files), fetch: servers.fetch, options: { nix } })
}

const hexOf = (hash: string) => Buffer.from(hash.replace('sha256-', ''), 'base64').toString('hex')
const jsonOf = (bytes: Uint8Array | undefined) => JSON.parse(Buffer.from(bytes ?? []).toString('utf8'))

describe.concurrent.skipIf(skipped)('binary caches of Nix', () => {
  // Goal: signed paths, fixed outputs of two kinds and a derivation that no cache has; then a build without a network.
  test(
    'a flake on a stdenv',
    async () => {
      await using servers = await startFetchServers()
      const made = makeNixCache(servers, 'good')
      const end = await built(servers, flakeOnStdenv(), [made.cache])
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks).toEqual(['unused', 'wanted', 'done'])
      expect(new Set(servers.connected)).toEqual(new Set([`${gitHost}:443`]))
      const files = filesOf(end)
      expect(Buffer.from(files.get('artifacts/hello') ?? []).toString('utf8')).toBe(
        'with stdenv of base\nwith stdenv of base, from elsewhere\n',
      )
      const { buildDefinition } = jsonOf(files.get('attestations/slsa.json')).predicate
      expect(buildDefinition.externalParameters.options.nix).toEqual({ output: null, caches: [made.cache] })
      expect(buildDefinition.internalParameters.order.options.nix).toEqual({ output: null, caches: [made.cache] })
      const dependencies: { name: string; digest: object; annotations?: { signers?: string[] } }[] =
        buildDefinition.resolvedDependencies.slice(3)
      const signed = (name: string) => {
        const storePath = made.paths[name] ?? ''
        const sha256 = narOf(made, storePath).narSha256
        return {
          name,
          uri: `pkg:nix-path/${storePath}?nar=sha256:${sha256}`,
          digest: { sha256 },
          annotations: { storePath, signers: [made.cache.publicKey], contentAddress: null },
        }
      }
      const byName = <T extends { name: string }>(list: readonly T[]) =>
        list.toSorted((a, b) => (a.name < b.name ? -1 : 1))
      expect(byName(dependencies)).toMatchObject([
        signed('base-1.0'),
        { name: 'flat.tar.gz', digest: { sha256: hexOf(fixedOutputs.flat.hash) } },
        signed('stdenv-1.0'),
        { name: 'unpacked', digest: { sha256: hexOf(flakeInputHash()) } },
      ])
      const own: { name: string }[] = jsonOf(files.get('provenance.json')).predicate.buildDefinition
        .resolvedDependencies
      expect(
        own
          .slice(1)
          .map(({ name }) => name)
          .toSorted(),
      ).toEqual(['base-1.0', 'flat.tar.gz', 'stdenv-1.0', 'unpacked'])
      const { components } = jsonOf(files.get('attestations/sbom.cdx.json'))
      expect(components.length).toBe(4)
      expect(Buffer.from(files.get('build.log') ?? []).toString('utf8')).not.toContain('RAN')
    },
    timeoutMs,
  )

  // Goal: another key, other bytes, a missing path, a cache that is not reached, and another fixed output each fail
  // with the cause, before anything of the source is built.
  test(
    'hostile and incomplete caches',
    async () => {
      await using servers = await startFetchServers()
      const good = makeNixCache(servers, 'good')
      const foreign = makeNixCache(servers, 'foreign')
      const changed = (name: string, change: (made: NixCache) => void) => {
        const made = makeNixCache(servers, name)
        change(made)
        return made.cache
      }
      const otherBytes = changed('bytes', made => {
        const { file } = narOf(made, made.paths['base-1.0'] ?? '')
        const nar = Buffer.from(Bun.spawnSync(['xz', '--decompress', '--stdout', file]).stdout)
        nar.write('evil', nar.indexOf('base'))
        fs.writeFileSync(file, Bun.spawnSync(['xz', '--stdout'], { stdin: nar }).stdout)
      })
      const missing = changed('missing', made => {
        fs.rmSync(join(made.dir, `${made.paths['base-1.0']?.slice(0, 32)}.narinfo`))
      })
      const cases: [string, SourceFiles, NixOptions['caches'], string, RegExp][] = [
        [
          'the key of another cache',
          flakeOnStdenv(),
          [{ ...good.cache, publicKey: foreign.cache.publicKey }],
          'checksum_mismatch',
          /not signed by any of the keys|lacks a valid signature/,
        ],
        ['other bytes', flakeOnStdenv(), [otherBytes], 'checksum_mismatch', /hash mismatch/],
        ['a missing path', flakeOnStdenv(), [missing], 'source_unreachable', /base-1\.0 is in no cache of the request/],
        [
          'a host that is not allowed',
          flakeOnStdenv(),
          [{ ...good.cache, url: 'https://refused.strongroom.test/good-cache' }],
          'source_unreachable',
          /nix_caches: a cache cannot be read/,
        ],
        [
          'another fixed output',
          flakeOnStdenv({ flat: { ...fixedOutputs.flat, hash: `sha256-${'A'.repeat(43)}=` } }),
          [good.cache],
          'checksum_mismatch',
          /flat\.tar\.gz .*cannot be fetched by its hash; add a binary cache/,
        ],
        [
          'a fixed output without an address',
          flakeOnStdenv({ unpacked: { ...fixedOutputs.unpacked, url: '' } }),
          [good.cache],
          'source_unreachable',
          /unpacked \(without a URL\) cannot be fetched by its hash; add a binary cache/,
        ],
      ]
      await Promise.all(
        cases.map(async ([what, files, caches, errorType, why]) => {
          const { result, lines } = await built(servers, files, caches)
          expect([what, result]).toEqual([
            what,
            expect.objectContaining({ status: 'failed', errorType, error: expect.stringMatching(why) }),
          ])
          expect(lines.filter(({ type, msg }) => type === 'build' || msg.includes('RAN'))).toEqual([])
        }),
      )
    },
    timeoutMs,
  )

  // Goal: a flake's own caches and keys count for nothing, and what it builds while it is evaluated does not run.
  test(
    'a hostile flake',
    async () => {
      await using servers = await startFetchServers()
      const good = makeNixCache(servers, 'good')
      const foreign = makeNixCache(servers, 'foreign')
      const settings = `nixConfig = { extra-substituters = [ "${good.cache.url}" ]; extra-trusted-public-keys = [ "${good.cache.publicKey}" ]; require-sigs = false; fallback = true; max-jobs = 8; };`
      const wrongKey = { ...good.cache, publicKey: foreign.cache.publicKey }
      const own = await built(servers, flakeOnStdenv({ head: settings }), [wrongKey])
      expect(own.result).toMatchObject({ status: 'failed', errorType: 'checksum_mismatch' })
      // Nix 2.26 shows lines of the source in an error: they have no RAN.
      const script = `derivation { name = "ran"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo R'A'N >&2; echo x > $out" ]; }`
      const early = await built(
        servers,
        flakeOnStdenv({ value: `(builtins.seq (builtins.readFile (${script})) top)` }),
        [good.cache],
      )
      expect(early.result).toMatchObject({
        status: 'failed',
        errorType: 'source_invalid',
        error: expect.stringContaining('allow-import-from-derivation'),
      })
      expect(early.lines.filter(({ msg }) => msg.includes('RAN'))).toEqual([])
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(skipped)('a derivation that changes its inputs', () => {
  // Goal: one user owns the store, so a derivation can write into its inputs. The build then used
  // other bytes than those that were signed, so it fails.
  test(
    'fails the build',
    async () => {
      await using vm = await startBuildVm()
      const flake = `{ outputs = { self }: let
        made = name: script: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" script ]; };
        input = made "input" "echo good > $out";
        first = made "first" "chmod u+w \${input}; echo evil > \${input}; echo x > $out";
      in { packages.x86_64-linux.default = made "last" "cat \${input} \${first} > $out"; }; }\n`
      const end = await vm.build({ archive: archiveOf({ ...flakeProject, 'flake.nix': flake }), options: null })
      expect(end.result).toMatchObject({
        status: 'failed',
        errorType: 'build_failed',
        error: expect.stringContaining('a derivation changed paths of the store'),
      })
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(skipped)('outputs of a flake', () => {
  // Goal: the output that the request names is built, is in the provenance, and a missing one is an error of its own.
  test(
    'an output of a flake',
    async () => {
      const named = async (files: SourceFiles, output: string) => {
        await using vm = await startBuildVm()
        return await vm.build({ archive: archiveOf(files), options: { nix: { output, caches: [] } } })
      }
      const two = {
        ...flakeProject,
        'flake.nix': `{ outputs = { self }: let
          made = name: derivation { inherit name; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" "echo \${name} > $out" ]; };
        in { packages.x86_64-linux = { default = made "hello"; other = made "second"; }; }; }\n`,
      }
      const output = 'packages.x86_64-linux.other'
      const end = await named(two, output)
      expect(end.result).toMatchObject({ status: 'ok' })
      const files = filesOf(end)
      expect(Buffer.from(files.get('artifacts/second') ?? []).toString('utf8')).toBe('second\n')
      const { buildDefinition } = jsonOf(files.get('attestations/slsa.json')).predicate
      expect(buildDefinition.externalParameters.options.nix).toEqual({ output, caches: [] })
      expect(buildDefinition.internalParameters.command.at(-1)).toBe(`path:/build/source#${output}`)
      const none = await named(two, 'packages.x86_64-linux.none')
      expect(none.result).toMatchObject({ status: 'failed', errorType: 'source_invalid' })
    },
    timeoutMs,
  )
})
