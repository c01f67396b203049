// Rows: versions of locks, workspaces, and packages that stand for others. Pure.
import {
  alone,
  answer,
  answerManifest,
  answerSource,
  crate,
  cratesIo,
  entriesOf,
  library,
  listed,
  lockOf,
  lockV1,
  main,
  manifest,
  plain,
  type Row,
  usesAnswer,
  usesLock,
  vendoredAnswer,
} from './parts.ts'

const mine = 'sparse+https://mine.example/index/'

export const LOCKS_AND_WORKSPACES: readonly Row[] = [
  {
    what: 'lock version 1',
    files: { ...usesAnswer, ...vendoredAnswer, 'Cargo.lock': lockV1 },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'lock version 2',
    files: { ...usesAnswer, ...vendoredAnswer, 'Cargo.lock': usesLock.replace('version = 4\n\n', '') },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'lock version 3',
    files: { ...usesAnswer, ...vendoredAnswer, 'Cargo.lock': usesLock.replace('version = 4', 'version = 3') },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'lock version 4',
    files: { ...usesAnswer, ...vendoredAnswer, 'Cargo.lock': usesLock },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'a crate that is fetched',
    files: { ...usesAnswer, 'Cargo.lock': usesLock },
    fetches: true,
    ...{ artifacts: ['uses'], packages: ['answer 0.1.0 fetched', 'uses 0.1.0 path'] },
  },
  {
    what: 'a virtual workspace',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["a", "b"]\n',
      'Cargo.lock': lockOf({ name: 'a' }, { name: 'b' }),
      'a/Cargo.toml': manifest('a'),
      'a/src/main.rs': 'fn main() {}\n',
      'b/Cargo.toml': manifest('b'),
      'b/src/main.rs': 'fn main() {}\n',
    },
    ...{ artifacts: ['a', 'b'], packages: ['a 0.1.0 path', 'b 0.1.0 path'] },
  },
  {
    what: 'default members',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["a", "b"]\ndefault-members = ["b"]\n',
      'Cargo.lock': lockOf({ name: 'a' }, { name: 'b' }),
      'a/Cargo.toml': manifest('a'),
      'a/src/main.rs': 'fn main() {}\n',
      'b/Cargo.toml': manifest('b'),
      'b/src/main.rs': 'fn main() {}\n',
    },
    ...{ artifacts: ['b'], packages: ['a 0.1.0 path (not compiled)', 'b 0.1.0 path'] },
  },
  {
    what: 'members by a pattern, and one that is excluded',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["crates/*"]\nexclude = ["crates/old"]\n',
      'Cargo.lock': lockOf({ name: 'a', deps: ['b'] }, { name: 'b' }),
      'crates/a/Cargo.toml': manifest('a', '[dependencies]\nb = { path = "../b" }\n'),
      'crates/a/src/main.rs': 'fn main() { println!("{}", b::value()); }\n',
      'crates/b/Cargo.toml': manifest('b'),
      'crates/b/src/lib.rs': 'pub fn value() -> u32 { 5 }\n',
      'crates/old/Cargo.toml': 'no manifest',
    },
    ...{ artifacts: ['a'], packages: ['a 0.1.0 path', 'b 0.1.0 path'] },
  },
  {
    what: 'a member with a stale lock of its own',
    projectDir: 'a',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["a", "b"]\n',
      'Cargo.lock': lockOf({ name: 'a', deps: ['b'] }, { name: 'b' }),
      'a/Cargo.toml': manifest('a', '[dependencies]\nb = { path = "../b" }\n'),
      'a/Cargo.lock': lockOf({ name: 'a', deps: ['serde'] }, crate('serde')),
      'a/src/main.rs': 'fn main() { println!("{}", b::value()); }\n',
      ...library('b'),
    },
    ...{ artifacts: ['a'], packages: ['a 0.1.0 path', 'b 0.1.0 path'], lock: 'Cargo.lock' },
  },
  {
    what: 'a package that is excluded from the workspace above it',
    projectDir: 'tool',
    files: {
      ...plain,
      'Cargo.toml': `${manifest('app')}[workspace]\nexclude = ["tool"]\n`,
      'tool/Cargo.toml': manifest('tool'),
      'tool/Cargo.lock': lockOf({ name: 'tool' }),
      'tool/src/main.rs': 'fn main() {}\n',
    },
    ...{ artifacts: ['tool'], packages: alone('tool'), lock: 'tool/Cargo.lock' },
  },
  {
    what: 'a package whose workspace is below it',
    files: {
      ...main(''),
      'Cargo.toml': manifest('app').replace('[package]', '[package]\nworkspace = "ws"'),
      'Cargo.lock': lockOf({ name: 'app', deps: ['serde'] }, crate('serde')),
      'ws/Cargo.toml': '[workspace]\nresolver = "2"\nmembers = [".."]\n',
      'ws/Cargo.lock': lockOf({ name: 'app' }),
    },
    ...{ artifacts: ['app'], packages: alone('app'), lock: 'ws/Cargo.lock' },
  },
  {
    what: 'versions and dependencies that members inherit',
    files: {
      'Cargo.toml':
        '[workspace]\nresolver = "2"\nmembers = ["a"]\n[workspace.package]\nversion = "3.2.1"\nedition = "2021"\n[workspace.dependencies]\nanswer = "0.1"\n',
      'Cargo.lock': lockOf({ name: 'a', version: '3.2.1', deps: ['answer'] }, answer),
      'a/Cargo.toml':
        '[package]\nname = "a"\nversion.workspace = true\nedition.workspace = true\n[dependencies]\nanswer.workspace = true\n',
      'a/src/main.rs': 'fn main() { println!("{}", answer::answer()); }\n',
      ...vendoredAnswer,
    },
    ...{ artifacts: ['a'], packages: ['a 3.2.1 path', 'answer 0.1.0 vendored'] },
  },
  {
    what: 'the first resolver',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "1"\nmembers = ["a"]\n',
      'Cargo.lock': lockOf({ name: 'a', deps: ['answer'] }, answer),
      'a/Cargo.toml': manifest('a', '[dependencies]\nanswer = "0.1"\n'),
      'a/src/main.rs': 'fn main() { println!("{}", answer::answer()); }\n',
      ...vendoredAnswer,
    },
    ...{ artifacts: ['a'], packages: ['a 0.1.0 path', 'answer 0.1.0 vendored'] },
  },
  {
    what: 'the third resolver',
    files: {
      'Cargo.toml': '[workspace]\nresolver = "3"\nmembers = ["a"]\n',
      'Cargo.lock': lockOf({ name: 'a', deps: ['answer'] }, answer),
      'a/Cargo.toml': manifest('a', '[dependencies]\nanswer = "0.1"\n', 'edition = "2024"\nrust-version = "1.85"'),
      'a/src/main.rs': 'fn main() { println!("{}", answer::answer()); }\n',
      ...vendoredAnswer,
    },
    ...{ artifacts: ['a'], packages: ['a 0.1.0 path', 'answer 0.1.0 vendored'] },
  },
  {
    what: 'dependencies by path, one behind another',
    files: {
      'Cargo.toml': manifest('app', '[dependencies]\nb = { path = "libs/b" }\n'),
      'Cargo.lock': lockOf({ name: 'app', deps: ['b'] }, { name: 'b', deps: ['c'] }, { name: 'c' }),
      ...main('println!("{}", b::value());'),
      'libs/b/Cargo.toml': manifest('b', '[dependencies]\nc = { path = "../../more/c" }\n'),
      'libs/b/src/lib.rs': 'pub use c::value;\n',
      'more/c/Cargo.toml': manifest('c'),
      'more/c/src/lib.rs': 'pub fn value() -> u32 { 7 }\n',
    },
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'b 0.1.0 path', 'c 0.1.0 path'] },
  },
  {
    what: '[patch] with a directory',
    files: {
      ...usesAnswer,
      'Cargo.toml': `${usesAnswer['Cargo.toml']}[patch.crates-io]\nanswer = { path = "own" }\n`,
      'Cargo.lock': lockOf({ name: 'answer' }, { name: 'uses', deps: ['answer'] }),
      'own/Cargo.toml': answerManifest,
      'own/src/lib.rs': answerSource,
    },
    ...{ artifacts: ['uses'], packages: ['answer 0.1.0 patched', 'uses 0.1.0 path'] },
  },
  {
    what: '[patch] in the settings',
    files: {
      ...usesAnswer,
      '.cargo/config.toml': '[patch.crates-io]\nanswer = { path = "own" }\n',
      'Cargo.lock': lockOf({ name: 'answer' }, { name: 'uses', deps: ['answer'] }),
      'own/Cargo.toml': answerManifest,
      'own/src/lib.rs': answerSource,
    },
    ...{ artifacts: ['uses'], packages: ['answer 0.1.0 patched', 'uses 0.1.0 path'] },
  },
  {
    what: '[replace]',
    files: {
      ...usesAnswer,
      ...vendoredAnswer,
      'Cargo.toml': `${usesAnswer['Cargo.toml']}[replace]\n"answer:0.1.0" = { path = "own" }\n`,
      'Cargo.lock': `version = 4\n\n${entriesOf([{ ...answer, replace: 'answer 0.1.0' }, { name: 'answer' }, { name: 'uses', deps: [`answer 0.1.0 (${cratesIo})`] }])}`,
      'own/Cargo.toml': answerManifest,
      'own/src/lib.rs': answerSource,
    },
    ...{ artifacts: ['uses'], packages: ['answer 0.1.0 replaced', 'uses 0.1.0 path'] },
  },
  {
    what: 'paths in the settings',
    files: {
      ...usesAnswer,
      ...vendoredAnswer,
      '.cargo/config.toml': `paths = ["own"]\n${vendoredAnswer['.cargo/config.toml']}`,
      'Cargo.lock': usesLock,
      'own/Cargo.toml': answerManifest,
      'own/src/lib.rs': answerSource,
    },
    ...{ artifacts: ['uses'], packages: ['answer 0.1.0 replaced', 'uses 0.1.0 path'] },
  },
  {
    // The remedy of the message for such a registry without vendor/ (mistakes.ts).
    what: 'a registry of the settings, whose crate `cargo vendor` put into the source',
    files: {
      'Cargo.toml': manifest('uses', '[dependencies]\nanswer = { version = "0.1", registry = "mine" }\n'),
      'Cargo.lock': lockOf({ ...answer, source: mine }, { name: 'uses', deps: ['answer'] }),
      ...main('println!("{}", answer::answer());'),
      ...vendoredAnswer,
      '.cargo/config.toml': `[registries.mine]\nindex = "${mine}"\n[source."${mine}"]\nregistry = "${mine}"\nreplace-with = "vendored-sources"\n[source.vendored-sources]\ndirectory = "vendor"\n`,
    },
    ...{ artifacts: ['uses'], packages: listed },
  },
  {
    what: 'a registry in the source',
    files: {
      ...usesAnswer,
      'Cargo.lock': usesLock,
      '.cargo/config.toml':
        '[source.crates-io]\nreplace-with = "here"\n[source.here]\ndirectory = "third_party/rust"\n',
      ...Object.fromEntries(
        Object.entries(vendoredAnswer)
          .filter(([path]) => path.startsWith('vendor/'))
          .map(([path, text]) => [path.replace('vendor/', 'third_party/rust/'), text]),
      ),
    },
    ...{ artifacts: ['uses'], packages: listed },
  },
]
