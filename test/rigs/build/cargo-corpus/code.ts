// Rows: what a package compiles, and what decides which packages are compiled. Pure.
import {
  alone,
  answer,
  answerManifest,
  library,
  lockOf,
  main,
  manifest,
  plain,
  type Row,
  vendoredAnswer,
  withLibrary,
} from './parts.ts'

export const CODE: readonly Row[] = [
  {
    what: 'a build script that writes code',
    files: {
      ...plain,
      'build.rs':
        'fn main() { std::fs::write(std::env::var("OUT_DIR").unwrap() + "/n.rs", "const N: u32 = 3;").unwrap(); }\n',
      'src/main.rs': 'include!(concat!(env!("OUT_DIR"), "/n.rs"));\nfn main() { println!("{N}"); }\n',
    },
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'a dependency of a build script alone',
    files: {
      'Cargo.toml': manifest('app', '[build-dependencies]\nanswer = "0.1"\n'),
      'Cargo.lock': lockOf({ name: 'app', deps: ['answer'] }, answer),
      'build.rs': 'fn main() { println!("cargo:rustc-env=N={}", answer::answer()); }\n',
      ...main('println!("{}", env!("N"));'),
      ...vendoredAnswer,
    },
    ...{ artifacts: ['app'], packages: ['answer 0.1.0 vendored', 'app 0.1.0 path'].sort() },
  },
  {
    what: 'a macro of the source',
    files: withLibrary(
      'forge',
      '[dependencies]\nforge = { path = "forge" }\n',
      library(
        'forge',
        '[lib]\nproc-macro = true\n',
        '#[proc_macro] pub fn one(_: proc_macro::TokenStream) -> proc_macro::TokenStream { "1".parse().unwrap() }\n',
      ),
      'println!("{}", forge::one!());',
    ),
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'forge 0.1.0 path'] },
  },
  {
    what: 'C code',
    files: {
      ...plain,
      'Cargo.toml': manifest('app').replace('[package]', '[package]\nlinks = "one"'),
      'one.c': 'int one(void) { return 1; }\n',
      'build.rs': compiling('gcc', 'one.c', ''),
      'src/main.rs': 'extern "C" { fn one() -> i32; }\nfn main() { println!("{}", unsafe { one() }); }\n',
    },
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'C++ code',
    files: {
      ...plain,
      'one.cc': '#include <string>\nextern "C" int one() { return (int)std::string("a").size(); }\n',
      'build.rs': compiling('g++', 'one.cc', 'println!("cargo:rustc-link-lib=stdc++");'),
      'src/main.rs': 'extern "C" { fn one() -> i32; }\nfn main() { println!("{}", unsafe { one() }); }\n',
    },
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'libraries for C',
    files: {
      'Cargo.toml': manifest('clib', '[lib]\ncrate-type = ["lib", "cdylib", "staticlib"]\n'),
      'Cargo.lock': lockOf({ name: 'clib' }),
      'src/lib.rs': '#[no_mangle]\npub extern "C" fn one() -> i32 { 1 }\n',
    },
    ...{ artifacts: ['libclib.a', 'libclib.so'], packages: alone('clib') },
  },
  {
    what: 'no_std',
    files: {
      'Cargo.toml': manifest('bare', '[lib]\ncrate-type = ["staticlib"]\n[profile.release]\npanic = "abort"\n'),
      'Cargo.lock': lockOf({ name: 'bare' }),
      'src/lib.rs':
        '#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n#[no_mangle]\npub extern "C" fn one() -> i32 { 1 }\n',
    },
    ...{ artifacts: ['libbare.a'], packages: alone('bare') },
  },
  {
    what: 'edition 2024',
    files: { ...plain, 'Cargo.toml': manifest('app', '', 'edition = "2024"') },
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'editions 2015 and 2018',
    files: {
      ...withLibrary(
        'old',
        '[dependencies]\nold = { path = "old" }\n',
        library('old'),
        'println!("{}", old::value());',
      ),
      'Cargo.toml': manifest('app', '[dependencies]\nold = { path = "old" }\n', 'edition = "2018"'),
      'old/Cargo.toml': manifest('old', '', 'edition = "2015"'),
    },
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'old 0.1.0 path'] },
  },
  {
    what: 'a feature that is on by default brings a package',
    files: withLibrary(
      'extra',
      '[features]\ndefault = ["more"]\nmore = ["dep:extra"]\n[dependencies]\nextra = { path = "extra", optional = true }\n',
      library('extra'),
      'println!("{}", extra::value());',
    ),
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'extra 0.1.0 path'] },
  },
  {
    what: 'the same without default features',
    options: { noDefaultFeatures: true },
    files: withLibrary(
      'extra',
      '[features]\ndefault = ["more"]\nmore = ["dep:extra"]\n[dependencies]\nextra = { path = "extra", optional = true }\n',
      library('extra'),
    ),
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'a feature of the request',
    options: { features: ['more'] },
    files: withLibrary(
      'extra',
      '[features]\nmore = ["dep:extra"]\n[dependencies]\nextra = { path = "extra", optional = true }\n',
      library('extra'),
      'println!("{}", extra::value());',
    ),
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'extra 0.1.0 path'] },
  },
  {
    what: 'a dependency of another system',
    files: withLibrary('far', '[target.\'cfg(windows)\'.dependencies]\nfar = { path = "far" }\n', library('far')),
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'examples, benches and tests, which are not built',
    files: {
      ...plain,
      ...Object.fromEntries(['examples', 'benches', 'tests'].map(name => [`${name}/broken.rs`, 'no Rust\n'])),
    },
    ...{ artifacts: ['app'], packages: alone('app') },
  },
  {
    what: 'a dependency of tests',
    files: withLibrary('far', '[dev-dependencies]\nfar = { path = "far" }\n', library('far')),
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'far 0.1.0 path (not compiled)'] },
  },
  {
    what: 'a dependency under another name',
    files: withLibrary(
      'far',
      '[dependencies]\nnear = { package = "far", path = "far" }\n',
      library('far'),
      'println!("{}", near::value());',
    ),
    ...{ artifacts: ['app'], packages: ['app 0.1.0 path', 'far 0.1.0 path'] },
  },
  {
    what: 'two versions of a crate',
    files: {
      'Cargo.toml': manifest('app', '[dependencies]\nanswer = "0.1"\nlater = { package = "answer", path = "later" }\n'),
      'Cargo.lock': lockOf({ name: 'app', deps: ['answer 0.1.0', 'answer 0.2.0'] }, answer, {
        name: 'answer',
        version: '0.2.0',
      }),
      ...main('println!("{}", answer::answer() + later::value());'),
      'later/Cargo.toml': answerManifest.replace('0.1.0', '0.2.0'),
      'later/src/lib.rs': 'pub fn value() -> u32 { 1 }\n',
      ...vendoredAnswer,
    },
    ...{ artifacts: ['app'], packages: ['answer 0.1.0 vendored', 'answer 0.2.0 path', 'app 0.1.0 path'] },
  },
  {
    what: 'several programs and names with hyphens',
    files: {
      'Cargo.toml': manifest('my-app', '[lib]\nname = "other_name"\n[[bin]]\nname = "third_tool"\npath = "src/t.rs"\n'),
      'Cargo.lock': lockOf({ name: 'my-app' }),
      ...main('println!("{}", other_name::value());'),
      'src/lib.rs': 'pub fn value() -> u32 { 1 }\n',
      'src/t.rs': 'fn main() {}\n',
      'src/bin/second-tool.rs': 'fn main() {}\n',
    },
    ...{ artifacts: ['my-app', 'second-tool', 'third_tool'], packages: alone('my-app') },
  },
  {
    what: 'one program and a profile of the source',
    options: { bin: 'second', profile: 'small' },
    files: {
      ...plain,
      'Cargo.toml': manifest(
        'app',
        '[profile.small]\ninherits = "release"\nlto = true\npanic = "abort"\nstrip = true\n',
      ),
      'src/bin/second.rs': 'fn main() {}\n',
    },
    ...{ artifacts: ['second'], packages: alone('app') },
  },
  {
    what: 'a target of the settings, and a directory for the output',
    files: {
      ...plain,
      '.cargo/config.toml': '[build]\ntarget = "x86_64-unknown-linux-gnu"\ntarget-dir = "elsewhere"\n',
    },
    ...{ artifacts: ['app'], packages: alone('app') },
  },
]

function compiling(compiler: string, file: string, more: string): string {
  return `use std::process::Command;
fn run(program: &str, words: &[&str]) { assert!(Command::new(program).args(words).status().unwrap().success()); }
fn main() {
  let out = std::env::var("OUT_DIR").unwrap();
  run("${compiler}", &["-c", "${file}", "-o", &format!("{out}/one.o")]);
  run("ar", &["crs", &format!("{out}/libone.a"), &format!("{out}/one.o")]);
  println!("cargo:rustc-link-search=native={out}");
  println!("cargo:rustc-link-lib=static=one");
  ${more}
}
`
}
