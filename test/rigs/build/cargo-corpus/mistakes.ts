// Rows: mistakes, each with the message that names cause and remedy. Pure.
import { answerCrate } from '../../../../scripts/rigs/build/sources.ts'
import {
  answer,
  library,
  lockOf,
  main,
  manifest,
  plain,
  printsAnswer,
  type Row,
  usesAnswer,
  usesLock,
  vendoredAnswer,
} from './parts.ts'

export const MISTAKES: readonly Row[] = [
  {
    what: 'a lock of a version that is yet to come',
    files: { ...plain, 'Cargo.lock': 'version = 99\n' },
    fails:
      /^source_invalid: Cargo.lock needs a newer cargo than the builder has; write it with an older cargo, or pin /,
  },
  {
    what: 'no lock',
    files: { 'Cargo.toml': manifest('app'), ...main('') },
    fails: /^lock_missing: source: Cargo.toml without Cargo.lock; run `cargo generate-lockfile` and send Cargo.lock/,
  },
  {
    what: 'a crate that a service without a network cannot fetch',
    files: { ...usesAnswer, 'Cargo.lock': usesLock },
    fails: /^source_unreachable: packages of Cargo.lock are not in the source, .*cargo vendor/,
  },
  {
    what: 'a crate with another checksum than the lock has',
    files: { ...usesAnswer, 'Cargo.lock': usesLock.replace(answerCrate.sha256, 'ab'.repeat(32)) },
    fetches: true,
    fails:
      /^checksum_mismatch: a fetched package does not match its checksum in Cargo\.lock; restore Cargo\.lock; if it is/,
  },
  {
    what: 'a vendored crate that was changed',
    files: { ...usesAnswer, ...vendoredAnswer, 'Cargo.lock': usesLock, 'vendor/answer/src/lib.rs': '' },
    fails: /^checksum_mismatch: a vendored file does not match its .cargo-checksum.json; run `cargo vendor` again/,
  },
  {
    what: 'a dependency outside of the source',
    files: { ...plain, 'Cargo.toml': manifest('app', '[dependencies]\nb = { path = "../../b" }\n') },
    fails: /^source_invalid: a dependency by path is outside of the source; add its directory to the source/,
  },
  {
    what: 'a dependency outside of the source, beside a crate that is fetched',
    files: {
      ...usesAnswer,
      'Cargo.toml': `${usesAnswer['Cargo.toml']}b = { path = "../../b" }\n`,
      'Cargo.lock': usesLock,
    },
    fetches: true,
    fails: /^source_invalid: a dependency by path is outside of the source; add its directory to the source/,
  },
  {
    what: 'a package that the workspace above it does not list',
    projectDir: 'tool',
    files: {
      ...plain,
      'Cargo.toml': `${manifest('app')}[workspace]\n`,
      'tool/Cargo.toml': manifest('tool'),
      'tool/Cargo.lock': lockOf({ name: 'tool' }),
      'tool/src/main.rs': 'fn main() {}\n',
    },
    fails: /^source_invalid: the workspace above the project does not list it; add it to workspace\.members/,
  },
  {
    what: 'a library for Rust alone',
    files: { 'Cargo.toml': manifest('lib'), 'Cargo.lock': lockOf({ name: 'lib' }), 'src/lib.rs': '' },
    fails:
      /^no_artifacts: the build produced no artifact: the project has no program, cdylib or staticlib; select a package that has one/,
  },
  {
    what: 'a lock that does not fit its manifest',
    files: { ...plain, 'Cargo.toml': manifest('app', '[dependencies]\nb = { path = "b" }\n'), ...library('b') },
    fails: /^source_invalid: Cargo.lock does not match Cargo.toml; run `cargo update/,
  },
  {
    what: 'a lock behind a link',
    files: Object.fromEntries(
      Object.entries({ ...plain, 'real.lock': plain['Cargo.lock'] ?? '' }).filter(([path]) => path !== 'Cargo.lock'),
    ),
    links: { 'Cargo.lock': 'real.lock' },
    fails: /^lock_missing: source: Cargo.toml without Cargo.lock; run `cargo generate-lockfile`/,
  },
  {
    what: 'a registry of the settings that is not the public one',
    files: {
      ...printsAnswer,
      'Cargo.toml': manifest('uses', '[dependencies]\nanswer = { version = "0.1", registry = "mine" }\n'),
      '.cargo/config.toml': '[registries.mine]\nindex = "sparse+https://mine.example/index/"\n',
      'Cargo.lock': lockOf(
        { ...answer, source: 'sparse+https://mine.example/index/' },
        { name: 'uses', deps: ['answer'] },
      ),
    },
    fetches: true,
    fails: /^source_unreachable: a package comes from a registry that only cargo settings define, .*run `cargo vendor`/,
  },
  {
    what: 'a newer compiler that a package needs',
    files: { ...plain, 'Cargo.toml': manifest('app', '', 'edition = "2021"\nrust-version = "1.990"') },
    fails:
      /^source_invalid: a package needs a newer compiler than the builder has; run `cargo update -p NAME --precise/,
  },
  {
    what: 'a nightly compiler that the source needs',
    files: { ...plain, 'src/main.rs': '#![feature(never_type)]\nfn main() {}\n' },
    fails:
      /^build_failed: the source needs a nightly compiler, and the builder has a stable one; use features of stable/,
  },
  {
    what: 'a library that the builder lacks',
    files: {
      ...plain,
      'src/main.rs': '#[link(name = "none7")]\nextern "C" { fn one(); }\nfn main() { unsafe { one() } }\n',
    },
    fails: /^build_failed: the builder lacks a system library; enable the crate's feature that compiles it/,
  },
  {
    what: 'a build script that fetches',
    files: {
      ...plain,
      'build.rs': 'fn main() { std::net::TcpStream::connect("host.strongroom.test:80").unwrap(); }\n',
    },
    fails: /^build_failed: a build script uses the network, but builds run without one; add the files that it fetches/,
  },
  {
    what: 'an edition that is yet to come',
    files: { ...usesAnswer, 'Cargo.toml': manifest('uses', '', 'edition = "2099"'), 'Cargo.lock': usesLock },
    fails:
      /^source_invalid: a Cargo.toml needs a newer or a nightly cargo; use an edition that the builder's cargo has/,
  },
  {
    what: 'a lock with marks of a merge',
    files: { ...plain, 'Cargo.lock': `<<<<<<< HEAD\n${plain['Cargo.lock']}=======\n>>>>>>> other\n` },
    fails: /^source_invalid: Cargo.lock contains merge conflict markers; run `cargo generate-lockfile`/,
  },
]
