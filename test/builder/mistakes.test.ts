// Goal: each mistake that people make with a source ends in a message with its cause and what to do. The expected words
// stand here, whole.

import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { writeTree } from '../../scripts/rigs/build/sources.ts'
import { buildFailure, fetchFailure as cargoFetchFailure, resolveFailure } from '../../src/builder/cargo/causes.plan.ts'
import { readCargoLock } from '../../src/builder/cargo/lock.codec.ts'
import { pinnedRust } from '../../src/builder/cargo/rust-toolchain.ts'
import { exitText, failureOf } from '../../src/builder/failure.ts'
import { goBuildFailure, goFailure } from '../../src/builder/go/causes.plan.ts'
import { nixFailure } from '../../src/builder/nix/causes.plan.ts'
import { findProject } from '../../src/builder/project.ts'
import { checkClone, checkSubmodule, fetchFailure, submoduleFailure } from '../../src/builder/source/clone.plan.ts'
import { TOOLCHAINS } from '../../src/builder/toolchains.ts'

const url = new URL('https://git.example/a.git')
const archive = 'or send an archive made after `git submodule update --init --recursive`'

async function messageOf(run: () => unknown): Promise<string> {
  let end: unknown
  try {
    end = await run()
    if (typeof end === 'string') return end
  } catch (error) {
    end = error
  }
  const { errorType, message } = failureOf(end)
  return `${errorType}: ${message}`
}

const clone = (address: string, ref: string | null = null) => checkClone({ url: address, ref })
const submodule = (address: string | null) => checkSubmodule({ path: 'libs/x', url: address })

const pinning = 'pin that version in rust-toolchain.toml and set rust_mirror (--rust-mirror) to a Rust mirror'
const resolve = (output: string) => resolveFailure(output, [])
const compile = (output: string) => buildFailure('exit code 101', output, null)
const cargoFetch = (output: string) => cargoFetchFailure(101, output)
const unreachable =
  'source_unreachable: cargo fetch: exit code 101; vendor the packages, or ask the operator which hosts are allowed: '

/** A source of these files, none of which has any text, as the builder looks for its project. */
async function detect(paths: readonly string[], wish: { toolchain?: 'cargo'; projectDir?: string } = {}) {
  const root = fs.mkdtempSync('/tmp/strongroom-mistakes-')
  try {
    writeTree(root, Object.fromEntries(paths.map(path => [path, ''])))
    const none = { projectDir: null, toolchain: null, options: null, fetch: null, sourceName: 'source' }
    return await findProject(root, { ...none, ...wish }, TOOLCHAINS)
  } finally {
    fs.rmSync(root, { recursive: true })
  }
}

/** The toolchain file of a source with this text. */
async function pin(text: string) {
  const root = fs.mkdtempSync('/tmp/strongroom-mistakes-')
  try {
    fs.writeFileSync(join(root, 'rust-toolchain.toml'), text)
    return await pinnedRust(root, '')
  } finally {
    fs.rmSync(root, { recursive: true })
  }
}

const goMismatch = 'verifying example.com/a@v1.0.0: checksum mismatch'

type Mistake = [what: string, run: () => unknown, message: string]

const MISTAKES: Mistake[] = [
  ['http instead of https', () => clone('http://git.example/a'), 'source_invalid: repo_url: not an https URL'],
  ['an ssh address', () => clone('git@git.example:a.git'), 'source_invalid: repo_url: not an https URL'],
  [
    'a password in the address',
    () => clone('https://me:secret@git.example/a'),
    'source_invalid: repo_url: with a user or password; the service takes no credentials',
  ],
  [
    'a branch in the address',
    () => clone('https://git.example/a#main'),
    'source_invalid: repo_url: with a query or fragment; name a branch, tag or commit in repo_ref',
  ],
  [
    'an option instead of a ref',
    () => clone('https://git.example/a', '--upload-pack=id'),
    'source_invalid: repo_ref: "--upload-pack=id" begins with a character that git interprets',
  ],
  [
    'a range instead of a ref',
    () => clone('https://git.example/a', 'v1..v2'),
    'source_invalid: repo_ref: "v1..v2" is not the name of a branch, tag or commit',
  ],
  [
    'a short commit',
    () => fetchFailure(url, 'abc1234', 128, 'no ref'),
    'source_unreachable: git fetch of https://git.example/a.git, ref abc1234: exit code 128; a commit needs 40 hexadecimal digits; fewer are taken for the name of a branch or tag: no ref',
  ],
  [
    'a branch with a typing error',
    () => fetchFailure(url, 'mian', 128, "fatal: couldn't find remote ref mian"),
    "source_unreachable: git fetch of https://git.example/a.git, ref mian: exit code 128; the repository has no branch, tag or commit mian; compare with `git ls-remote`: fatal: couldn't find remote ref mian",
  ],
  [
    'a private repository, or a host that is not allowed',
    () => fetchFailure(url, null, 128, 'fatal: Received HTTP code 403 from proxy after CONNECT'),
    'source_unreachable: git fetch of https://git.example/a.git: exit code 128; check URL and ref, that the repository is public, and that the operator allows its host: fatal: Received HTTP code 403 from proxy after CONNECT',
  ],
  [
    'a submodule by ssh',
    () => submodule('git@git.example:x.git'),
    `source_invalid: submodule "libs/x": its url "git@git.example:x.git" is not https; write an https address in .gitmodules; ${archive}`,
  ],
  [
    'a submodule by ssh, as a URL',
    () => submodule('ssh://git@git.example/x.git'),
    `source_invalid: submodule "libs/x": its url "ssh://git@git.example/x.git" is not https; write an https address in .gitmodules; ${archive}`,
  ],
  [
    'a submodule by http',
    () => submodule('http://git.example/x.git'),
    `source_invalid: submodule "libs/x": its url "http://git.example/x.git" is not https; write an https address in .gitmodules; ${archive}`,
  ],
  [
    'a submodule from a file',
    () => submodule('file:///etc'),
    `source_invalid: submodule "libs/x": its url "file:///etc" is not https; write an https address in .gitmodules; ${archive}`,
  ],
  [
    'a submodule beside its repository',
    () => submodule('../x.git'),
    `source_invalid: submodule "libs/x": its url "../x.git" is relative; write the whole https address in .gitmodules; ${archive}`,
  ],
  [
    'a submodule of this machine',
    () => submodule('/srv/x.git'),
    `source_invalid: submodule "libs/x": its url "/srv/x.git" is relative; write the whole https address in .gitmodules; ${archive}`,
  ],
  [
    'a submodule without an address',
    () => submodule(null),
    `source_invalid: submodule "libs/x": .gitmodules names no url; add the https address of its repository; ${archive}`,
  ],
  [
    'a submodule with a password',
    () => submodule('https://me:secret@git.example/x'),
    `source_invalid: submodule "libs/x": its url "https://me:secret@git.example/x" cannot be fetched: with a user or password; the service takes no credentials; ${archive}`,
  ],
  [
    'a submodule of a host that is not allowed',
    () => submoduleFailure('libs/x', fetchFailure(url, 'a'.repeat(40), 128, 'fatal: 403')),
    `source_unreachable: submodule "libs/x": git fetch of https://git.example/a.git, ref ${'a'.repeat(40)}: exit code 128; check URL and ref, that the repository is public, and that the operator allows its host: fatal: 403\nRemedy: ask the operator to allow its host, ${archive}`,
  ],
  [
    'a submodule that an archive lacks',
    () => resolveFailure('failed to read `/build/source/libs/x/Cargo.toml`', ['libs/x']),
    'source_invalid: submodules are missing: "libs/x"; run `git submodule update --init --recursive`, and send their files with the source: failed to read `/build/source/libs/x/Cargo.toml`',
  ],
  [
    'a toolchain file without a channel',
    () => pin('[toolchain]\npath = "/opt/rust"\nchannel = 7\n'),
    'source_invalid: rust-toolchain.toml: does not name a channel; write [toolchain] with channel = "1.96.0"',
  ],
  [
    'a toolchain file that names a directory of one machine',
    () => pin('[toolchain]\npath = "/opt/rust"\n'),
    'source_invalid: rust-toolchain.toml: does not name a channel; write [toolchain] with channel = "1.96.0"',
  ],
  [
    'components of a toolchain that are no list',
    () => pin('[toolchain]\nchannel = "1.96.0"\ncomponents = "rust-src"\n'),
    'source_invalid: rust-toolchain.toml: components: not a list of at most 32 names',
  ],
  [
    'a project below the root of the source',
    () => detect(['README.md', 'server/Cargo.toml', 'tools/gen/go.mod', 'vendor/x/Cargo.toml']),
    'toolchain_undetected: source: none of strongroom.build.toml, flake.nix, Cargo.toml, go.mod, package.json in the project; name its directory by project_dir: "server", "tools/gen"',
  ],
  [
    'a toolchain whose project is elsewhere',
    () => detect(['go.mod', 'native/Cargo.toml'], { toolchain: 'cargo' }),
    'toolchain_undetected: toolchain cargo: there is no Cargo.toml in the project; name its directory by project_dir: "native"',
  ],
  [
    'a source without any project',
    () => detect(['README.md', 'src/index.js']),
    'toolchain_undetected: source: none of strongroom.build.toml, flake.nix, Cargo.toml, go.mod, package.json in the project; no directory near the root of the source has one',
  ],
  [
    'a lock of a newer cargo',
    () => resolve('lock file version `5` was found, perhaps Cargo needs to be updated?'),
    `source_invalid: Cargo.lock needs a newer cargo than the builder has; write it with an older cargo, or ${pinning}: lock file version \`5\` was found, perhaps Cargo needs to be updated?`,
  ],
  [
    'a lock with marks of a merge',
    () => readCargoLock('version = 4\n<<<<<<< HEAD\n'),
    'source_invalid: Cargo.lock contains merge conflict markers; run `cargo generate-lockfile`',
  ],
  [
    'a feature of nightly cargo',
    () => resolve('unknown Cargo.toml feature `edition20xx`'),
    `source_invalid: a Cargo.toml needs a newer or a nightly cargo; use an edition that the builder's cargo has, or ${pinning}: unknown Cargo.toml feature \`edition20xx\``,
  ],
  [
    'a registry of the own settings',
    () =>
      cargoFetchFailure(
        101,
        'failed to parse manifest at x\nregistry index was not found in any configuration: `mine`',
      ),
    'source_unreachable: a package comes from a registry that only cargo settings define, and the fetch ignores them; run `cargo vendor`, and send vendor/ and .cargo/config.toml with the source: failed to parse manifest at x\nregistry index was not found in any configuration: `mine`',
  ],
  [
    'a package that its workspace does not list',
    () => resolve("error: current package believes it's in a workspace when it's not:\ncurrent: x"),
    "source_invalid: the workspace above the project does not list it; add it to workspace.members or workspace.exclude of that Cargo.toml: error: current package believes it's in a workspace when it's not:\ncurrent: x",
  ],
  [
    'a dependency by path outside of the source',
    () => resolve('failed to load source for dependency `b`\nfailed to read `/build/b/Cargo.toml`'),
    'source_invalid: a dependency by path is outside of the source; add its directory to the source, and correct the path: failed to load source for dependency `b`\nfailed to read `/build/b/Cargo.toml`',
  ],
  [
    'a dependency by path that a fetched repository lacks',
    () => resolve('failed to read `/build/cargo/git/checkouts/a-1/b/Cargo.toml`'),
    'source_invalid: cargo cannot read a Cargo.toml of the source: failed to read `/build/cargo/git/checkouts/a-1/b/Cargo.toml`',
  ],
  [
    'a dependency by path that is missing in the source',
    () => resolve('failed to read `/build/source/b/Cargo.toml`'),
    'source_invalid: cargo cannot read a Cargo.toml of the source: failed to read `/build/source/b/Cargo.toml`',
  ],
  [
    'a lock with another checksum than the registry has',
    () => cargoFetchFailure(101, 'error: checksum for `a v0.1.0` changed between lock files'),
    'checksum_mismatch: a fetched package does not match its checksum in Cargo.lock; restore Cargo.lock; if it is unchanged, compare the package with its registry before you run `cargo update -p NAME`: error: checksum for `a v0.1.0` changed between lock files',
  ],
  [
    'a download with another checksum than the lock has',
    () => cargoFetch('error: failed to verify the checksum of `a v0.1.0`'),
    'checksum_mismatch: a fetched package does not match its checksum in Cargo.lock; restore Cargo.lock; if it is unchanged, compare the package with its registry before you run `cargo update -p NAME`: error: failed to verify the checksum of `a v0.1.0`',
  ],
  [
    'a host without an address, after a package that is named after checksums',
    () => cargoFetch('Downloaded internet-checksum v0.2.1\nCould not resolve hostname'),
    `${unreachable}Downloaded internet-checksum v0.2.1\nCould not resolve hostname`,
  ],
  [
    'a refused host of a package that is named after checksums',
    () => cargoFetch('failed to get `acme-checksum`\nCONNECT tunnel failed, response 403'),
    `${unreachable}failed to get \`acme-checksum\`\nCONNECT tunnel failed, response 403`,
  ],
  [
    'a commit that a repository named after checksums lacks',
    () => cargoFetch("Updating git repository `https://git.example/checksum-utils`\nrevspec 'abc' not found"),
    "source_unreachable: a repository lacks a branch, tag or commit of Cargo.lock; run `cargo update -p NAME`, and send Cargo.lock with the source: Updating git repository `https://git.example/checksum-utils`\nrevspec 'abc' not found",
  ],
  [
    'a branch that was deleted',
    () => cargoFetchFailure(101, "fatal: couldn't find remote ref refs/heads/old"),
    "source_unreachable: a repository lacks a branch, tag or commit of Cargo.lock; run `cargo update -p NAME`, and send Cargo.lock with the source: fatal: couldn't find remote ref refs/heads/old",
  ],
  [
    'a host that is not allowed, for a package',
    () => cargoFetchFailure(101, 'error: failed to download from `https://x.example/a`'),
    'source_unreachable: cargo fetch: exit code 101; vendor the packages, or ask the operator which hosts are allowed: error: failed to download from `https://x.example/a`',
  ],
  [
    'a vendored file that an editor changed',
    () => compile('error: the listed checksum of `/build/source/vendor/a/src/lib.rs` has changed'),
    'checksum_mismatch: a vendored file does not match its .cargo-checksum.json; run `cargo vendor` again, and send vendor/ unchanged: error: the listed checksum of `/build/source/vendor/a/src/lib.rs` has changed',
  ],
  [
    'a manifest with a typing error',
    () => resolve('error: failed to parse manifest at `/build/source/Cargo.toml`'),
    'source_invalid: cargo cannot read a Cargo.toml or the Cargo.lock of the source: error: failed to parse manifest at `/build/source/Cargo.toml`',
  ],
  [
    'a package that needs a newer compiler',
    () => compile('error: rustc 1.96.0 is not supported by the following package:\n  a@0.1.0 requires rustc 1.99'),
    `source_invalid: a package needs a newer compiler than the builder has; run \`cargo update -p NAME --precise VERSION\` for an older one, or ${pinning}: error: rustc 1.96.0 is not supported by the following package:\n  a@0.1.0 requires rustc 1.99`,
  ],
  [
    'code for nightly Rust',
    () => compile('error[E0554]: `#![feature]` may not be used on the stable release channel'),
    'build_failed: the source needs a nightly compiler, and the builder has a stable one; use features of stable Rust alone: error[E0554]: `#![feature]` may not be used on the stable release channel',
  ],
  [
    'a library of the system that is not there',
    () => compile('rust-lld: error: unable to find library -lpq'),
    "build_failed: the builder lacks a system library; enable the crate's feature that compiles it (often `vendored` or `bundled`), or add the library to the source: rust-lld: error: unable to find library -lpq",
  ],
  [
    'a build script that downloads',
    () => compile('curl: (6) Could not resolve host: example.org'),
    'build_failed: a build script uses the network, but builds run without one; add the files that it fetches to the source: curl: (6) Could not resolve host: example.org',
  ],
  [
    'a flake without the package',
    () =>
      nixFailure(
        'nix build: exit code 1',
        "error: flake 'path:/build/source' does not provide attribute 'packages.x86_64-linux.default'",
      ),
    "source_invalid: the flake does not define this package; select another with output (--flake-output), or add packages.x86_64-linux.default: error: flake 'path:/build/source' does not provide attribute 'packages.x86_64-linux.default'",
  ],
  [
    'a flake that reads a file of the machine',
    () =>
      nixFailure('nix build: exit code 1', "error: access to absolute path '/etc/a' is forbidden in pure eval mode"),
    "source_invalid: the flake reads a file outside of the source; add the file to the source, or make it an input: error: access to absolute path '/etc/a' is forbidden in pure eval mode",
  ],
  [
    'a flake that builds while it is evaluated',
    () => nixFailure('nix build: exit code 1', "because the option 'allow-import-from-derivation' is disabled"),
    "source_invalid: the flake builds a derivation during evaluation, which is not allowed; add the generated file to the source: because the option 'allow-import-from-derivation' is disabled",
  ],
  [
    'a flake whose lock is old',
    () =>
      nixFailure(
        'nix build: exit code 1',
        "flake 'a' requires lock file changes but they're not allowed due to '--no-update-lock-file'",
      ),
    "source_invalid: flake.lock does not match flake.nix; run `nix flake lock`, and send flake.lock with the source: flake 'a' requires lock file changes but they're not allowed due to '--no-update-lock-file'",
  ],
  [
    'a flake for another system',
    () =>
      nixFailure(
        'nix build: exit code 1',
        "error: a 'aarch64-linux' with features {} is required to build '/nix/store/a.drv', but I am a 'x86_64-linux'",
      ),
    "source_invalid: a derivation is for a system other than x86_64-linux; select an output for that system: error: a 'aarch64-linux' with features {} is required to build '/nix/store/a.drv', but I am a 'x86_64-linux'",
  ],
  [
    'a flake with any other error',
    () => nixFailure('nix build: exit code 1', 'error: infinite recursion encountered'),
    'build_failed: nix build: exit code 1: error: infinite recursion encountered',
  ],
  [
    'a flake with an undefined name',
    () => nixFailure('nix build: exit code 1', "error: undefined variable 'a'"),
    "source_invalid: flake.nix has an error; run `nix build` with the output of the request to see it: error: undefined variable 'a'",
  ],
  [
    'a derivation that needs a virtual machine',
    () =>
      nixFailure(
        'nix build: exit code 1',
        "error: a 'x86_64-linux' with features {kvm} is required to build '/nix/store/a.drv', but I am a 'x86_64-linux' with features {}",
      ),
    "source_invalid: a derivation needs a feature that the builder lacks, such as a virtual machine (kvm); select an output without it: error: a 'x86_64-linux' with features {kvm} is required to build '/nix/store/a.drv', but I am a 'x86_64-linux' with features {}",
  ],
  [
    'a fixed output with another hash',
    () => nixFailure('nix build: exit code 1', "error: hash mismatch in fixed-output derivation '/nix/store/a.drv':"),
    "checksum_mismatch: the output of a derivation does not match the hash in the flake; compare the file with its origin first; if the change is intended, correct the hash: error: hash mismatch in fixed-output derivation '/nix/store/a.drv':",
  ],
  [
    'a build script that prints the words of Nix about hashes',
    () => nixFailure('nix build: exit code 1', 'hello> test: hash mismatch in fixed-output derivation'),
    'build_failed: nix build: exit code 1: hello> test: hash mismatch in fixed-output derivation',
  ],
  [
    'a derivation that fetches by itself',
    () => nixFailure('nix build: exit code 1', "a.tar.gz> error: unable to download 'https://x.example/a': x"),
    "source_unreachable: a derivation fetches a file, but builds run without a network; add the file to the source, or submit to a service that fetches: a.tar.gz> error: unable to download 'https://x.example/a': x",
  ],
  [
    'a build script of a derivation that downloads',
    () => nixFailure('nix build: exit code 1', 'a> curl: (6) Could not resolve host: x.example'),
    'source_unreachable: a derivation fetches a file, but builds run without a network; add the file to the source, or submit to a service that fetches: a> curl: (6) Could not resolve host: x.example',
  ],
  [
    'a derivation that fetches by itself, as Nix 2.26 says it',
    () =>
      nixFailure(
        'nix build',
        "a> error:\na>    … writing file 'b'\na>    error: unable to download 'https://x.example/a'",
      ),
    "source_unreachable: a derivation fetches a file, but builds run without a network; add the file to the source, or submit to a service that fetches: a> error:\na>    … writing file 'b'\na>    error: unable to download 'https://x.example/a'",
  ],
  [
    'an output that is no derivation, as Nix 2.26 says it',
    () =>
      nixFailure('nix build', "error: expected flake output attribute 'a' to be a derivation or path but found a set"),
    "source_invalid: this output of the flake is not a derivation; select a package with output (--flake-output): error: expected flake output attribute 'a' to be a derivation or path but found a set",
  ],
  [
    'a file that a flake fetches while it is evaluated',
    () => nixFailure('nix build: exit code 1', "error: unable to download 'https://x.example/a': x"),
    "source_unreachable: the flake fetches an input that flake.lock does not list, but builds run without a network; run `nix flake lock`, and turn files that it fetches during evaluation into inputs of flake.nix: error: unable to download 'https://x.example/a': x",
  ],
  [
    'modules of Go that go.sum lacks',
    () => goFailure('go build: exit code 1', 'missing go.sum entry for module providing package a', false),
    'lock_missing: go.sum lacks a module that the project needs; run `go mod tidy`, and send go.sum with the source: missing go.sum entry for module providing package a',
  ],
  [
    'a module of Go with another hash than go.sum has',
    () => goFailure('go list: exit code 1', `${goMismatch}\n\nSECURITY ERROR\nThis download`, false),
    `checksum_mismatch: the proxy serves a module whose hash differs from the one in go.sum; restore go.sum, or set go_proxy to another proxy: ${goMismatch}\n\nSECURITY ERROR\nThis download`,
  ],
  [
    'an import of Go that quotes the words of go about hashes',
    () => goFailure('go list: exit code 1', 'a.go:3:8: invalid import path: "verifying a: checksum mismatch"', false),
    'build_failed: go list: exit code 1: a.go:3:8: invalid import path: "verifying a: checksum mismatch"',
  ],
  ...['a checksum mismatch', 'http.StatusForbidden', 'dial tcp', 'missing module'].map(
    (words): Mistake => [
      `code of Go with an error beside the words: ${words}`,
      () => goBuildFailure('go build: exit code 1', `./a.go:7:2: cannot use "${words}" as int`),
      `build_failed: go build: exit code 1: ./a.go:7:2: cannot use "${words}" as int`,
    ],
  ),
  [
    'a member of a workspace of Go that go.mod does not name',
    () =>
      goFailure(
        'go list: exit code 1',
        'cannot find module providing package a: import lookup disabled by -mod=readonly',
        true,
      ),
    'source_invalid: builds ignore go.work, so name the modules of the workspace with `replace` in go.mod; otherwise: go.mod does not match the project; run `go mod tidy`, and send go.mod and go.sum with the source: cannot find module providing package a: import lookup disabled by -mod=readonly',
  ],
  [
    'a vendor directory of Go that is old',
    () => goFailure('go list: exit code 1', 'go: inconsistent vendoring in /build/source:', false),
    'source_invalid: vendor/modules.txt does not match go.mod; run `go mod vendor`, and send vendor/ with the source: go: inconsistent vendoring in /build/source:',
  ],
  [
    'a build that needs more memory',
    () => exitText(137, { memoryBytes: 1024 }),
    'ended by signal 9, usually because it ran out of memory; the limit is 1024 bytes',
  ],
]

// Goal: every message, to the letter.
test.each(MISTAKES)('%s', async (_, run, message) => expect(await messageOf(run)).toBe(message))
