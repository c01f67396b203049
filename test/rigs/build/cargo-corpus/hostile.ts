// Rows: sources that try to falsify the list of their packages. Pure.
import type { SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import {
  alone,
  library,
  listed,
  lockOf,
  manifest,
  type Row,
  usesAnswer,
  usesLock,
  vendoredAnswer,
  withLibrary,
} from './parts.ts'

/** A build script whose lines fail the build if one of them has an effect that it must not have. */
const script = (body: string) => `use std::fs::{self, File, OpenOptions};
use std::io::Write;
fn main() {
  let _ = (File::open("/dev/null"), OpenOptions::new().write(true).open("/dev/null").map(|mut f| f.write_all(b"")));
  let _ = fs::metadata("/");
${body}
}
`

const hostileSettings = (text: string, more: SourceFiles = {}): SourceFiles => ({
  ...usesAnswer,
  ...vendoredAnswer,
  ...more,
  'Cargo.lock': usesLock,
  '.cargo/config.toml': `${text}\n${vendoredAnswer['.cargo/config.toml']}`,
})

const drops = '#!/bin/sh\nunset CARGO_PKG_NAME\n[ -x "$1" ] || set -- /opt/rust/bin/rustc "$@"\nexec "$@"\n'

/** Sources that try to make the list of packages say something else than what was compiled. */
export const HOSTILE: readonly Row[] = [
  {
    what: 'a build script that writes where fetched crates are',
    always: true,
    files: {
      ...usesAnswer,
      'Cargo.lock': usesLock,
      'build.rs': script(`
  for root in ["/build/cargo/registry/src", "/build/cargo/registry/cache", "/build/cargo/registry/index"] {
    for entry in fs::read_dir(root).unwrap() {
      let registry = entry.unwrap().path();
      assert!(fs::write(registry.join("new"), "x").is_err(), "{registry:?} is writable");
      assert!(fs::rename(&registry, "/build/cargo/moved").is_err(), "{registry:?} can be moved");
    }
    assert!(fs::rename(root, "/build/cargo/moved").is_err(), "{root} can be moved");
  }
  assert!(fs::rename("/build/cargo/registry", "/build/cargo/moved").is_err(), "the registry can be moved");`),
    },
    fetches: true,
    ...{ artifacts: ['uses'], packages: ['answer 0.1.0 fetched', 'uses 0.1.0 path'] },
  },
  {
    what: 'a build script that reaches for the messages of cargo',
    always: true,
    files: {
      ...usesAnswer,
      ...vendoredAnswer,
      'Cargo.lock': usesLock,
      'build.rs': script(`
  let mut found = 0;
  for entry in fs::read_dir("/proc").unwrap() {
    let process = entry.unwrap().path();
    if fs::read_to_string(process.join("comm")).unwrap_or_default().trim() != "cargo" { continue; }
    found += 1;
    for name in ["fd/1", "mem", "environ"] {
      assert!(File::open(process.join(name)).is_err(), "{name} of cargo can be read");
      assert!(OpenOptions::new().write(true).open(process.join(name)).is_err(), "{name} of cargo can be written");
    }
  }
  assert_eq!(found, 1);`),
    },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'a build script that prints messages and leaves files in the output',
    files: {
      ...usesAnswer,
      ...vendoredAnswer,
      'Cargo.lock': usesLock,
      'build.rs': script(`
  println!("{}", r#"{"reason":"compiler-artifact","package_id":"path+file:///build/source#x@0.1.0","manifest_path":"/build/source/x/Cargo.toml","target":{"kind":["bin"],"name":"x"},"executable":"/build/target/release/x","filenames":[]}"#);
  fs::write("/build/target/release/x", "x").unwrap();
  fs::create_dir_all("/build/target/release/.fingerprint/answer-0000000000000000").unwrap();
  fs::write("/build/target/release/.fingerprint/answer-0000000000000000/lib-answer", "0000000000000000").unwrap();
  fs::write("/build/target/.rustc_info.json", "{}").unwrap();`),
    },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'a directory of earlier builds in the source',
    always: true,
    files: {
      ...hostileSettings('[build]\nbuild-dir = "earlier"'),
      'earlier/release/deps/libanswer.rlib': 'x',
      'build.rs': script('  assert!(std::env::var("OUT_DIR").unwrap().starts_with("/build/target/"));'),
    },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'wrappers and compilers of the settings',
    files: hostileSettings(
      [
        '[build]\nrustc = "/build/source/drops"\nrustc-wrapper = "/build/source/drops"',
        'rustc-workspace-wrapper = "/build/source/drops"',
        '[env]\nRUSTC = { value = "/build/source/drops", force = true }',
        'RUSTC_WRAPPER = { value = "/build/source/drops", force = true }',
        'CARGO_ENCODED_RUSTFLAGS = { value = "--cfg", force = true }',
      ].join('\n'),
      { drops },
    ),
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'other commands under the names of cargo',
    files: hostileSettings('[alias]\nbuild = "--version"\nmetadata = "--list"\nlocate-project = "--version"'),
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'programs that give credentials',
    files: hostileSettings(
      '[registry]\nglobal-credential-providers = ["/build/source/drops"]\n[net]\ngit-fetch-with-cli = false',
      { drops },
    ),
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'settings that include others',
    files: {
      ...usesAnswer,
      ...vendoredAnswer,
      'Cargo.lock': usesLock,
      '.cargo/config.toml': 'include = ["more.toml"]\n',
      '.cargo/more.toml': `[build]\nrustc-wrapper = "/build/source/drops"\n[resolver]\nlockfile-path = "other/Cargo.lock"\n${vendoredAnswer['.cargo/config.toml']}`,
      'other/Cargo.lock': lockOf({ name: 'uses' }),
      drops,
    },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'a member that is a link to another directory',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["a"]\n',
      'Cargo.lock': lockOf({ name: 'a' }),
      'real/Cargo.toml': manifest('a'),
      'real/src/main.rs': 'fn main() {}\n',
    },
    links: { a: 'real' },
    places: { 'source:a': 'source:real' },
    ...{ artifacts: ['a'], packages: alone('a') },
  },
  {
    what: 'a member whose files are links that lead outside',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["a"]\n',
      'Cargo.lock': lockOf({ name: 'a' }),
      'keep/none': '',
    },
    links: { a: '/opt/rust' },
    fails: /^source_invalid: /,
  },
  {
    what: 'a message of more than a megabyte',
    always: true,
    files: withLibrary(
      'far',
      `[dependencies]\nfar = { path = "far", features = ["all"] }\n`,
      library(
        'far',
        `[features]\nall = [${Array.from({ length: 9000 }, (_, index) => `"${longName(index)}"`).join(', ')}]\n${Array.from({ length: 9000 }, (_, index) => `${longName(index)} = []`).join('\n')}\n`,
      ),
      'println!("{}", far::value());',
    ),
    fails: /^build_failed: cargo printed a line of more than 1048576 bytes/,
  },
]

function longName(index: number): string {
  return `f${String(index).padStart(5, '0')}${'x'.repeat(140)}`
}
