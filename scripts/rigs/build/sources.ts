// Sources for builds, as archives, so small that only rustc takes time. Effects: GNU tar, files below /tmp.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { tarOf } from '../archive-bytes.ts'
import { succeed } from '../guest/root.ts'
import { findRust } from './vm.ts'

export type SourceFiles = Readonly<Record<string, string>>

/** A tar.gz of these files, as GNU tar writes it; below one top-level directory when it is named. */
export function archiveOf(files: SourceFiles, top = ''): Uint8Array {
  const dir = fs.mkdtempSync('/tmp/strongroom-source-')
  try {
    const root = join(dir, top)
    writeTree(root, files)
    const tar = join(dir, '..', `${dir.slice(dir.lastIndexOf('/') + 1)}.tar`)
    try {
      succeed(['tar', '--create', '--file', tar, '--directory', dir, ...fs.readdirSync(dir)])
      return gzipSync(fs.readFileSync(tar))
    } finally {
      fs.rmSync(tar, { force: true })
    }
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

const lockOf = (packages: string): string => `version = 4\n\n${packages}`
const lockEntry = (name: string, more = ''): string => `[[package]]\nname = "${name}"\nversion = "0.1.0"\n${more}\n`

export const plainProject: SourceFiles = {
  'Cargo.toml': '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n',
  'Cargo.lock': lockOf(lockEntry('hello')),
  'src/main.rs': 'fn main() { println!("hello from {}", file!()); }\n',
}

/** A build script, a member that is a C library, a member that is a program, and a link between files. */
export const workspaceProject: SourceFiles = {
  'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["app", "clib"]\n',
  'Cargo.lock': lockOf(`${lockEntry('app', 'dependencies = ["clib"]\n')}${lockEntry('clib')}`),
  'app/Cargo.toml':
    '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nclib = { path = "../clib" }\n',
  'app/build.rs':
    'fn main() { let out = std::env::var("OUT_DIR").unwrap(); std::fs::write(out + "/n.rs", format!("pub const N: u32 = {};", 41 + 1)).unwrap(); println!("cargo:rerun-if-changed=build.rs"); }\n',
  'app/src/main.rs':
    'include!(concat!(env!("OUT_DIR"), "/n.rs"));\nfn main() { println!("{}", N + clib::one() as u32); }\n',
  'clib/Cargo.toml':
    '[package]\nname = "clib"\nversion = "0.1.0"\nedition = "2021"\n[lib]\ncrate-type = ["lib", "cdylib", "staticlib"]\n',
  'clib/src/lib.rs': '#[no_mangle]\npub extern "C" fn one() -> i32 { 1 }\n',
}

const dependencySource = 'pub fn answer() -> u32 { 42 }\n'
const dependencyManifest = '[package]\nname = "answer"\nversion = "0.1.0"\nedition = "2021"\n'
const sha256 = (text: string | Uint8Array) => createHash('sha256').update(text).digest('hex')

/** The one package of a registry that exists in tests alone, and the file that the registry gives of it. */
export const answerCrate = (() => {
  const files = { 'answer-0.1.0/Cargo.toml': dependencyManifest, 'answer-0.1.0/src/lib.rs': dependencySource }
  const bytes = gzipSync(tarOf(Object.entries(files).map(([name, content]) => ({ name, content }))))
  return { bytes, sha256: sha256(bytes) }
})()

/** A package as a repository has it. */
export const replyFiles: SourceFiles = {
  'Cargo.toml': dependencyManifest.replace('answer', 'reply'),
  'src/lib.rs': 'pub fn reply() -> u32 { 1 }\n',
}

/**
 * With that package from a git repository, by branch, and the registry's crate; the lock names commit and checksum.
 */
export function gitProject({ url, commit }: { readonly url: string; readonly commit: string }): SourceFiles {
  const registry = `source = "registry+https://github.com/rust-lang/crates.io-index"\nchecksum = "${answerCrate.sha256}"\n`
  return {
    'Cargo.toml': `[package]\nname = "uses"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nanswer = "0.1"\nreply = { git = "${url}", branch = "main" }\n`,
    'Cargo.lock': lockOf(
      [
        lockEntry('answer', registry),
        lockEntry('reply', `source = "git+${url}?branch=main#${commit}"\n`),
        lockEntry('uses', 'dependencies = ["answer", "reply"]\n'),
      ].join(''),
    ),
    'src/main.rs': 'fn main() { println!("{}", answer::answer() + reply::reply()); }\n',
  }
}

let lockOfUses: string | null = null

/** With a package of the default registry below vendor/. Cargo itself writes the lock, which names that registry. */
export function vendoredProject(): SourceFiles {
  const files = { 'Cargo.toml': sha256(dependencyManifest), 'src/lib.rs': sha256(dependencySource) }
  const project = {
    'Cargo.toml': '[package]\nname = "uses"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nanswer = "0.1"\n',
    '.cargo/config.toml':
      '[source.crates-io]\nreplace-with = "vendored-sources"\n[source.vendored-sources]\ndirectory = "vendor"\n',
    'src/main.rs': 'fn main() { println!("{}", answer::answer()); }\n',
    'vendor/answer/Cargo.toml': dependencyManifest,
    'vendor/answer/src/lib.rs': dependencySource,
    'vendor/answer/.cargo-checksum.json': JSON.stringify({ files, package: answerCrate.sha256 }),
  }
  lockOfUses ??= lockedBy(project)
  return { ...project, 'Cargo.lock': lockOfUses }
}

/**
 * A build script, a vendored package of the default registry, reproducible programs, and a program that prints its
 * build time.
 */
export function vendoredWorkspace(): SourceFiles {
  const vendored = Object.entries(vendoredProject()).filter(([name]) => /^(?:vendor|\.cargo)\//.test(name))
  const project = {
    ...workspaceProject,
    ...Object.fromEntries(vendored),
    'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["app", "clib", "moment"]\n',
    'moment/Cargo.toml': '[package]\nname = "moment"\nversion = "0.1.0"\nedition = "2021"\n',
    'moment/build.rs':
      'fn main() { println!("cargo:rustc-env=AT={:?}", std::time::SystemTime::now()); println!("cargo:rerun-if-changed=build.rs"); }\n',
    'moment/src/main.rs': 'fn main() { println!("{}", env!("AT")); }\n',
    'app/Cargo.toml': `${workspaceProject['app/Cargo.toml']}answer = "0.1"\n`,
    'app/src/main.rs':
      'include!(concat!(env!("OUT_DIR"), "/n.rs"));\nfn main() { println!("{}", N + answer::answer() + clib::one() as u32); }\n',
  }
  return { ...project, 'Cargo.lock': lockedBy(project) }
}

/** The project with a vendored package, to be fetched. */
export function fetchedProject(): SourceFiles {
  return Object.fromEntries(Object.entries(vendoredProject()).filter(([name]) => !/^(?:vendor|\.cargo)/.test(name)))
}

export function lockedBy(files: SourceFiles): string {
  const dir = fs.mkdtempSync('/tmp/strongroom-lock-')
  try {
    writeTree(dir, files)
    const cargo = `${findRust()}/bin/cargo`
    const env = { ...process.env, CARGO_HOME: join(dir, 'home'), PATH: `${findRust()}/bin:${process.env.PATH}` }
    const { exitCode, stderr } = Bun.spawnSync([cargo, 'generate-lockfile', '--offline'], { cwd: dir, env })
    if (exitCode !== 0) throw new Error(`cargo generate-lockfile: ${stderr}`)
    return fs.readFileSync(join(dir, 'Cargo.lock'), 'utf8')
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

export function writeTree(root: string, files: SourceFiles): void {
  for (const [path, text] of Object.entries(files)) {
    fs.mkdirSync(dirname(join(root, path)), { recursive: true })
    fs.writeFileSync(join(root, path), text, { mode: text.startsWith('#!') ? 0o755 : 0o644 })
  }
}

/** No input from elsewhere: the builder is the shell that Nix puts into its sandbox. */
export const flakeProject: SourceFiles = {
  'flake.nix': `{
  outputs = { self }: {
    packages.x86_64-linux.default = derivation {
      name = "hello";
      system = "x86_64-linux";
      builder = "/bin/sh";
      args = [ "-c" "echo hello from nix > $out" ];
    };
  };
}
`,
  'flake.lock': '{"nodes":{"root":{}},"root":"root","version":7}',
}

/** A hostile or odd build script in an otherwise plain project. */
export function withBuildScript(script: string): SourceFiles {
  return { ...plainProject, 'build.rs': script }
}
