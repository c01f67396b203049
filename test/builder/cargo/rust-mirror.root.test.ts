// Goal: a build takes the exact compiler that its source pins from the mirror that its request names, checks each file
// by its digest, and names all of them in its evidence. The mirror is a stand-in, whose compiler runs this machine's.

import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { archiveOf, plainProject, type SourceFiles } from '../../../scripts/rigs/build/sources.ts'
import { type BuildEnd, cgroup2Root, findRust, startBuildVm, testLimits } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import type { CargoOptions } from '../../../src/contract/http/build-options.ts'
import { filesOf } from '../../rigs/build/built.ts'
import { type FetchServers, startFetchServers } from '../../rigs/build/fetch-servers.ts'
import {
  componentPath,
  manifestPath,
  rustMirror,
  serveRust,
  sha256Hex,
  standInCompiler,
  standInComponents,
  standInVersion,
} from '../../rigs/build/rust-mirror.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const timeoutMs = 1_800_000

const none: CargoOptions = {
  ...{ package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null },
}
const pins = (text: string): SourceFiles => ({ ...plainProject, 'rust-toolchain.toml': `[toolchain]\n${text}\n` })
const pinned = pins(`channel = "${standInVersion}"`)

async function built(
  { fetch }: Pick<FetchServers, 'fetch'>,
  files: SourceFiles,
  { mirror = rustMirror as string | null, waived = false, target = null as string | null } = {},
): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  const cargo = { ...none, target, ...(mirror === null ? {} : { rustMirror: mirror }) }
  return await vm.build({
    archive: archiveOf(files),
    fetch,
    options: mirror === null && target === null ? null : { cargo },
    waivers: waived ? ['any_toolchain'] : [],
    limits: { ...testLimits, fetchSeconds: 900, buildSeconds: 900 },
  })
}

const failureOf = ({ result }: BuildEnd) => (result.status === 'failed' ? `${result.errorType}: ${result.error}` : 'ok')

function outputOf(program: Uint8Array | undefined): string {
  const path = join(tmpdir(), `strongroom-rust-program-${process.pid}`)
  fs.writeFileSync(path, program ?? '', { mode: 0o755 })
  try {
    return Bun.spawnSync([path]).stdout.toString()
  } finally {
    fs.rmSync(path)
  }
}

describe.concurrent.skipIf(skipped)('a mirror of Rust', () => {
  // Goal: the pinned version builds the program, and each document names where it came from.
  test(
    'the pinned version',
    async () => {
      await using servers = await startFetchServers()
      const served = serveRust(servers.files)
      const source = {
        ...pinned,
        'rust-toolchain.toml': `[toolchain]\nchannel = "${standInVersion}"\ncomponents = ["rustfmt", "clippy"]\nprofile = "minimal"\n`,
        'src/main.rs': 'fn main() { println!("{}", cfg!(stand_in)); }\n',
      }
      const end = await built(servers, source)
      expect(failureOf(end)).toBe('ok')
      expect(end.networks).toEqual(['unused', 'wanted', 'done'])
      expect(end.lines.map(({ msg }) => msg)).toContain('skipped, because builds do not need them: rustfmt, clippy')
      const files = filesOf(end)
      expect(outputOf(files.get('artifacts/hello'))).toBe('true\n')
      const json = (path: string) => JSON.parse(Buffer.from(files.get(path) ?? []).toString('utf8'))
      const { buildDefinition, runDetails } = json('attestations/slsa.json').predicate
      const manifest = {
        name: 'rust-channel-manifest',
        uri: `https://crates.strongroom.test${manifestPath}`,
        digest: { sha256: sha256Hex(served.manifest) },
        annotations: { mirror: rustMirror, version: standInVersion },
      }
      const component = (name: string) => ({
        name: `rust-component ${name}`,
        uri: `https://crates.strongroom.test${componentPath(name)}`,
        digest: { sha256: served.digests[name] },
      })
      const expected = [manifest, component('rustc'), component('cargo'), component('rust-std')]
      expect(
        buildDefinition.resolvedDependencies.filter(({ name }: { name: string }) => name.startsWith('rust-')),
      ).toEqual(expected)
      expect(buildDefinition.internalParameters.pinnedCompiler).toEqual({
        path: 'rust-toolchain.toml',
        channel: standInVersion,
      })
      const tool = (name: string) =>
        runDetails.builder.builderDependencies.find((entry: { name: string }) => entry.name === name)
      expect(tool('rustc')).toEqual({
        name: 'rustc',
        digest: { sha256: sha256Hex(standInCompiler()) },
        annotations: { version: `rustc ${standInVersion} (stand-in 2026-01-01)` },
      })
      const { tools } = json('attestations/sbom.cdx.json').metadata
      const hashesOf = tools.components.map(({ name, version, hashes }: Record<string, unknown>) => [
        name,
        version,
        hashes,
      ])
      expect(hashesOf.slice(1)).toEqual(
        expected.map(({ name, digest }) => [name, standInVersion, [{ alg: 'SHA-256', content: digest.sha256 }]]),
      )
    },
    timeoutMs,
  )

  // Goal: whatever the mirror serves besides the one true channel ends the build before any of it compiles.
  test(
    'a mirror that serves something else',
    async () => {
      const cases: [what: string, change: (servers: FetchServers) => void, why: RegExp][] = [
        [
          'another manifest than its digest file says',
          ({ files }) => files.set(manifestPath, Buffer.from('manifest-version = "2"\n')),
          /^checksum_mismatch: rust_mirror: .*channel-rust-1.94.7.toml: its SHA-256 is [0-9a-f]{64}, and the mirror's own is/,
        ],
        [
          'another compiler than the manifest says',
          ({ files }) => files.set(componentPath('rustc'), Buffer.from('other')),
          /^checksum_mismatch: rust_mirror: .*rustc-1.94.7-x86_64-unknown-linux-gnu.tar.xz: its SHA-256 is/,
        ],
        [
          'no such version',
          ({ files }) => files.delete(`${manifestPath}.sha256`),
          /^source_unreachable: rust_mirror: .*toml.sha256: exit code 22 of curl; ask the operator/,
        ],
        [
          'a compiler of another version',
          ({ files }) => void serveRust(files, { components: standInComponents(standInCompiler('1.94.8')) }),
          /^checksum_mismatch: rust_mirror: the compiler of .* reports the version "rustc 1.94.8 \(stand-in 2026-01-01\)"/,
        ],
        [
          'a link instead of a compiler',
          ({ files }) => void serveRust(files, { link: { path: 'bin/rustc', to: '/etc/passwd' } }),
          /^checksum_mismatch: rust_mirror: the toolchain of .* has no file bin\/rustc/,
        ],
      ]
      for (const [what, change, why] of cases) {
        await using servers = await startFetchServers()
        serveRust(servers.files)
        change(servers)
        expect([what, failureOf(await built(servers, pinned))]).toEqual([what, expect.stringMatching(why)])
      }
    },
    timeoutMs,
  )

  // Goal: what a mirror cannot give is refused by name; without a mirror, and for the builder's own version, nothing is
  // fetched and the answer is that of a service without one.
  test(
    'what is not fetched',
    async () => {
      await using servers = await startFetchServers()
      serveRust(servers.files)
      const sysroot = findRust()
      const own =
        Bun.spawnSync([`${sysroot}/bin/rustc`, '--version'])
          .stdout.toString()
          .split(' ')[1] ?? ''
      const ends = async (text: string, more: Parameters<typeof built>[2] = {}) =>
        failureOf(await built(servers, pins(text), more))
      const inexact =
        /^source_invalid: rust-toolchain.toml pins "[^"]+", which is not an exact version: rust_mirror fetches/
      expect(await ends('channel = "nightly-2026-01-01"')).toMatch(inexact)
      expect(await ends('channel = "1.94"')).toMatch(inexact)
      expect(await ends('channel = "1.60.0"')).toMatch(/^source_invalid: .*"1.60.0", which is older than 1.68/)
      expect(await ends('channel = "1.94"', { waived: true })).toBe('ok')
      expect(await ends(`channel = "${own}"`)).toBe('ok')
      expect(await ends(`channel = "${standInVersion}"`, { mirror: null })).toMatch(
        /^source_invalid: rust-toolchain.toml pins "1.94.7", and this builder has rustc .*with any_toolchain/,
      )
      expect(servers.connected).toEqual([])
      expect(await ends(`channel = "${standInVersion}"\ncomponents = ["rust-src"]`)).toMatch(
        /^source_invalid: rust-toolchain.toml: components: Rust 1.94.7 has no "rust-src" for this builder; remove it/,
      )
      expect(await ends(`channel = "${standInVersion}"\ntargets = ["wasm32-wasip1"]`)).toMatch(
        /^source_invalid: rust-toolchain.toml: targets: Rust 1.94.7 has no "wasm32-wasip1" for this builder; remove it/,
      )
    },
    timeoutMs,
  )
})
