import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import {
  archiveOf,
  lockedBy,
  plainProject,
  type SourceFiles,
  vendoredProject,
} from '../../scripts/rigs/build/sources.ts'
import { cgroup2Root, findRust, startBuildVm } from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { filesOf } from '../rigs/build/built.ts'

const isRoot = userInfo().uid === 0
const noCargo = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
/** For all tests of this file together: they run beside each other. */
const timeoutMs = 1_800_000

type Package = readonly [name: string, origin: string, compiled: boolean, place: string]
type Listed = { readonly packages: readonly Package[]; readonly lock: string }
type Descriptor = { name: string; uri?: string; annotations?: Record<string, unknown> }

/** The packages of the full statement, or the failure of the build. */
async function listedOf(files: SourceFiles, projectDir: string | null = null): Promise<Listed | string> {
  await using vm = await startBuildVm()
  const { result, archive, ...end } = await vm.build({ archive: archiveOf(files), projectDir })
  if (archive === null) return `${result.status === 'failed' ? `${result.errorType}: ${result.error}` : ''}`
  const found = filesOf({ ...end, result, archive })
  const json = (path: string) => JSON.parse(Buffer.from(found.get(path) ?? []).toString('utf8'))
  const all: Descriptor[] = json('attestations/slsa.json').predicate.buildDefinition.resolvedDependencies
  const crates = all.filter(({ uri }) => uri?.startsWith('pkg:cargo/') === true)
  const sbom: { purl: string; properties: { value: string }[] }[] = json('attestations/sbom.cdx.json').components
  expect(sbom.map(({ purl, properties }) => [purl, properties[0]?.value])).toEqual(
    crates.map(({ uri, annotations }) => [uri ?? '', String(annotations?.origin)]),
  )
  return {
    lock: String(all.find(({ name }) => name === 'Cargo.lock')?.annotations?.path),
    packages: crates.map(({ name, uri = '', annotations }) => [
      name,
      String(annotations?.origin),
      annotations?.compiled === true,
      decodeURIComponent(uri.slice(uri.indexOf('?') + 1)),
    ]),
  }
}

const manifest = (name: string, more = '') =>
  `[package]\nname = "${name}"\nversion = "0.1.0"\nedition = "2021"\n${more}`
const vendored = vendoredProject
const uses: Package = ['uses', 'path', true, 'download_url=file:.']
const fromVendor: Package = ['answer', 'vendored', true, 'download_url=file:vendor/answer']
const inOther: SourceFiles = {
  'other/answer/Cargo.toml': manifest('answer'),
  'other/answer/src/lib.rs': 'pub fn answer() -> u32 { 666 }\n',
}
const settings = (more: string): SourceFiles => {
  const files = vendored()
  return { ...files, '.cargo/config.toml': `${more}\n${files['.cargo/config.toml']}` }
}

describe.concurrent.skipIf(noCargo)('the packages that the evidence names', () => {
  // Goal: code of the source never stands under a registry's checksum, whatever setting puts it there.
  test(
    'code of the source in the place of a registry package',
    async () => {
      expect(await listedOf(vendored())).toEqual({ lock: 'Cargo.lock', packages: [fromVendor, uses] })
      const other = 'download_url=file:other/answer'
      const paths = { ...settings('paths = ["other/answer"]'), ...inOther }
      expect(await listedOf(paths)).toEqual({
        lock: 'Cargo.lock',
        packages: [['answer', 'replaced', true, other], uses],
      })
      const patch = { ...settings('[patch.crates-io]\nanswer = { path = "other/answer" }'), ...inOther }
      expect(await listedOf({ ...patch, 'Cargo.lock': lockedBy(patch) })).toEqual({
        lock: 'Cargo.lock',
        packages: [['answer', 'patched', true, other], uses],
      })
    },
    timeoutMs,
  )

  // Goal: the lock is the one that cargo reads: a lock beside a member, or beside a package whose workspace is
  // elsewhere, means nothing.
  test(
    'a stale lock nearer than the workspace',
    async () => {
      const stale = `version = 4\n[[package]]\nname = "uses"\nversion = "0.1.0"\n`
      const { 'Cargo.toml': own = '', 'Cargo.lock': lock = '', 'src/main.rs': main = '', ...shared } = vendored()
      const member = {
        ...shared,
        'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["member"]\n',
        'Cargo.lock': lock,
        'member/Cargo.toml': own,
        'member/Cargo.lock': stale,
        'member/src/main.rs': main,
      }
      expect(await listedOf(member, 'member')).toEqual({
        lock: 'Cargo.lock',
        packages: [fromVendor, ['uses', 'path', true, 'download_url=file:member']],
      })
      const outward = {
        ...vendored(),
        'Cargo.toml': own.replace('[package]', '[package]\nworkspace = "ws"'),
        'Cargo.lock': stale,
        'ws/Cargo.toml': '[workspace]\nresolver = "2"\nmembers = [".."]\n',
        'ws/Cargo.lock': lock,
      }
      expect(await listedOf(outward)).toEqual({ lock: 'ws/Cargo.lock', packages: [fromVendor, uses] })
    },
    timeoutMs,
  )

  // Goal: no program of the source's choice runs while cargo lists the packages. Each of these would print a second
  // answer beside cargo's, or take the compiler's place.
  test(
    'settings that run programs',
    async () => {
      const forge =
        '#!/bin/sh\necho "{}" > /proc/$PPID/fd/1\n[ -x "$1" ] || set -- /opt/rust/bin/rustc "$@"\nexec "$@"\n'
      const hostile = {
        ...settings(
          [
            '[build]\nrustc-wrapper = "/build/source/forge"\nrustc-workspace-wrapper = "/build/source/forge"',
            'rustc = "/build/source/bin/rustc"',
            '[alias]\nmetadata = "--version"\nlocate-project = "--version"',
            '[env]\nPATH = { value = "/build/source/bin:/opt/rust/bin:/usr/bin", force = true }',
            'LD_PRELOAD = { value = "/build/source/none.so", force = true }',
          ].join('\n'),
        ),
        forge,
        'bin/rustc': forge,
      }
      expect(await listedOf(hostile)).toEqual({ lock: 'Cargo.lock', packages: [fromVendor, uses] })
    },
    timeoutMs,
  )

  // Goal: a build that rewrites lock and settings, and writes messages into cargo's own output,
  // cannot take a package off the list, and one that the lock lacks ends the build.
  test(
    'a build that forges',
    async () => {
      const script = `fn main() {
        let _ = std::fs::write("/build/source/Cargo.lock", "version = 4\\n");
        let _ = std::fs::write("/build/source/.cargo/config.toml", "");
        println!("{}", r#"{"reason":"compiler-artifact","package_id":"x"}"#);
      }`
      // Cargo passes on what a compiler prints, so this macro writes into cargo's own messages.
      const forging = (message: string) => {
        const { 'Cargo.toml': own = '', 'Cargo.lock': _, ...files } = vendored()
        const project = {
          ...files,
          'Cargo.toml': `${own}forge = { path = "forge" }\n`,
          'src/main.rs': `forge::forge!();\n${files['src/main.rs']}`,
          'build.rs': script,
          'forge/Cargo.toml': manifest('forge', '[lib]\nproc-macro = true\n'),
          'forge/src/lib.rs': `#[proc_macro] pub fn forge(_: proc_macro::TokenStream) -> proc_macro::TokenStream { println!("{}", r#"${message}"#); Default::default() }\n`,
        }
        return { ...project, 'Cargo.lock': lockedBy(project) }
      }
      const message = (id: string, path: string) =>
        JSON.stringify({
          reason: 'compiler-artifact',
          package_id: id,
          manifest_path: path,
          target: { kind: ['lib'], name: 'x' },
          filenames: [],
        })
      const known = message('path+file:///build/source#uses@0.1.0', '/build/source/Cargo.toml')
      expect(await listedOf(forging(known))).toEqual({
        lock: 'Cargo.lock',
        packages: [fromVendor, ['forge', 'path', true, 'download_url=file:forge'], uses],
      })
      const registry = 'registry+https://github.com/rust-lang/crates.io-index'
      const cases: [string, string, RegExp][] = [
        [
          `${registry}#serde@1.0.228`,
          '/build/cargo/registry/src/i/serde-1.0.228/Cargo.toml',
          /which Cargo.lock .* lacks/,
        ],
        ['path+file:///build/source/other#x@0.1.0', '/build/source/other/Cargo.toml', /which Cargo.lock .* lacks/],
        [`${registry}#answer@0.1.0`, '/build/cargo/registry/src/i/answer-0.1.0/Cargo.toml', /neither in the source/],
      ]
      await Promise.all(
        cases.map(async ([id, path, why]) => expect(await listedOf(forging(message(id, path)))).toMatch(why)),
      )
    },
    timeoutMs,
  )

  // Goal: a package that only the source's compiler flags bring into the build is on the list, and so is one that only
  // tests need, which was not compiled.
  test(
    'packages of flags and of tests',
    async () => {
      const { 'Cargo.toml': own = '', ...files } = vendored()
      const flagged = {
        ...files,
        'Cargo.toml': own.replace('[dependencies]', "[target.'cfg(hidden)'.dependencies]"),
        '.cargo/config.toml': `[build]\nrustflags = ["--cfg", "hidden"]\n${files['.cargo/config.toml']}`,
      }
      expect(await listedOf(flagged)).toEqual({ lock: 'Cargo.lock', packages: [fromVendor, uses] })
      const tested = {
        ...files,
        'Cargo.toml': own.replace('[dependencies]', '[dev-dependencies]'),
        'src/main.rs': 'fn main() {}\n',
      }
      expect(await listedOf(tested)).toEqual({
        lock: 'Cargo.lock',
        packages: [['answer', 'vendored', false, 'download_url=file:vendor/answer'], uses],
      })
    },
    timeoutMs,
  )

  // Goal: two members whose programs have one name leave one file, whose maker the evidence could not name.
  test(
    'two targets of one name',
    async () => {
      const two = {
        'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["a", "b"]\n',
        ...Object.fromEntries(
          ['a', 'b'].flatMap(name => [
            [`${name}/Cargo.toml`, manifest(name, '[[bin]]\nname = "tool"\npath = "src/main.rs"\n')],
            [`${name}/src/main.rs`, `fn main() { println!("${name}"); }\n`],
          ]),
        ),
      }
      expect(await listedOf({ ...two, 'Cargo.lock': lockedBy(two) })).toMatch(
        /^build_failed: two targets produce the artifact tool: \S+\/(?:a|b)#0\.1\.0, bin tool and \S+\/(?:a|b)#0\.1\.0, bin tool;/,
      )
    },
    timeoutMs,
  )

  // Goal: a lock that does not fit its manifest says so, with the remedy.
  test(
    'a lock that does not match',
    async () => {
      const { 'Cargo.toml': own = '', ...files } = plainProject
      const changed = { ...files, 'Cargo.toml': own.replace('0.1.0', '0.2.0') }
      expect(await listedOf(changed)).toMatch(
        /^source_invalid: Cargo.lock does not match Cargo.toml; run `cargo update/,
      )
      const outside = { ...files, 'Cargo.toml': own.replace('[package]', '[package]\nworkspace = "../.."') }
      expect(await listedOf(outside)).toMatch(/^source_invalid: .*Cargo.toml/)
    },
    timeoutMs,
  )
})
