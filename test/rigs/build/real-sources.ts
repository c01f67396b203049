// Sources for builds in real VMs. Each compiles as little as shows its point, because emulated compilers are slow.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  gitProject,
  plainProject,
  type SourceFiles,
  vendoredProject,
  withBuildScript,
  workspaceProject,
} from '../../../scripts/rigs/build/sources.ts'
import type { Repository } from './fetch-servers.ts'

export const noiseMiB = 6

/** A vendored package, and a program so large that its archive is not copied at one go. It prints 42 and that size. */
export function noisyProject(): SourceFiles {
  return {
    ...vendoredProject(),
    // The pause lets a client see that it compiles.
    'build.rs': `fn main() {
    let mut bytes = Vec::with_capacity(${noiseMiB} << 20);
    let mut x: u64 = 0x9e3779b97f4a7c15;
    while bytes.len() < ${noiseMiB} << 20 { x ^= x << 13; x ^= x >> 7; x ^= x << 17; bytes.extend_from_slice(&x.to_le_bytes()); }
    std::fs::write(std::env::var("OUT_DIR").unwrap() + "/noise", bytes).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
}
`,
    'src/main.rs':
      'static NOISE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/noise"));\nfn main() { println!("{} {}", answer::answer(), std::hint::black_box(NOISE).len()); }\n',
  }
}

export const endlessProject: SourceFiles = withBuildScript(
  'fn main() { loop { std::thread::sleep(std::time::Duration::from_secs(1)); } }',
)

/**
 * A workspace with a package from a registry and one from a git repository: its program prints 86, its C library is
 * reproducible, and its member `moment` prints the time of its build.
 */
export function fetchedWorkspace(reply: Repository): SourceFiles {
  const { 'Cargo.toml': manifest = '', 'Cargo.lock': lock = '' } = gitProject(reply)
  const [, dependencies = ''] = manifest.split('[dependencies]\n')
  const [head = '', answerEntry, replyEntry] = lock.split(/(?=\[\[package\]\])/)
  const own = (name: string, needs = '') => `[[package]]\nname = "${name}"\nversion = "0.1.0"\n${needs}\n`
  // Cargo takes only a lock in order.
  const app = own('app', 'dependencies = ["answer", "clib", "reply"]\n')
  const packages = [answerEntry, app, own('clib'), own('moment'), replyEntry]
  return {
    ...workspaceProject,
    'Cargo.toml': '[workspace]\nresolver = "2"\nmembers = ["app", "clib", "moment"]\n',
    'Cargo.lock': head + packages.join(''),
    'app/Cargo.toml': `${workspaceProject['app/Cargo.toml']}${dependencies}`,
    'app/src/main.rs':
      'include!(concat!(env!("OUT_DIR"), "/n.rs"));\nfn main() { println!("{}", N + answer::answer() + reply::reply() + clib::one() as u32); }\n',
    'moment/Cargo.toml': '[package]\nname = "moment"\nversion = "0.1.0"\nedition = "2021"\n',
    'moment/build.rs':
      'fn main() { println!("cargo:rustc-env=AT={:?}", std::time::SystemTime::now()); println!("cargo:rerun-if-changed=build.rs"); }\n',
    'moment/src/main.rs': 'fn main() { println!("{}", env!("AT")); }\n',
  }
}

/** Attacks the host's addresses and the VM's devices, then forks until most of the bound is used. */
const bombScript = (
  pidsMin: number,
) => `use std::{fs, net::TcpStream, path::Path, thread::sleep, time::{Duration, Instant}};
extern "C" { fn fork() -> i32; fn setpgid(pid: i32, group: i32) -> i32; fn kill(pid: i32, signal: i32) -> i32; }
fn processes() -> usize {
    fs::read_dir("/proc").unwrap().filter(|one| one.as_ref().unwrap().file_name().to_str().unwrap().parse::<u32>().is_ok()).count()
}
fn main() {
    for target in ["169.254.88.1:8441", "169.254.88.1:8443", "169.254.88.1:8444", "169.254.88.1:53", "10.88.0.1:22"] {
        if TcpStream::connect_timeout(&target.parse().unwrap(), Duration::from_millis(500)).is_ok() { println!("cargo:warning=REACHED {target}"); }
    }
    for path in ["/dev/virtio-ports", "/dev/vport1p1", "/dev/tpm0", "/dev/sev-guest", "/dev/vda", "/dev/vdb", "/dev/vdc", "/run/strongroom",
        "/sys/kernel/config", "/sys/class/net/eth0", "/proc/1/root/run/strongroom", "/var/lib/strongroom"] {
        if fs::File::open(path).is_ok() || Path::new(path).exists() { println!("cargo:warning=REACHED {path}"); }
    }
    let before = processes();
    let bomb = unsafe { fork() };
    if bomb == 0 {
        unsafe { setpgid(0, 0) };
        loop { unsafe { fork() }; }
    }
    assert!(bomb > 0);
    let since = Instant::now();
    let mut most = 0;
    while most < ${pidsMin} && since.elapsed() < Duration::from_secs(300) { most = most.max(processes()); sleep(Duration::from_millis(50)); }
    let ended = unsafe { kill(-bomb, 9) };
    while processes() > before + 1 && since.elapsed() < Duration::from_secs(600) { sleep(Duration::from_millis(50)); }
    println!("cargo:warning=FORKED {most} {ended}");
}
`

/** The probe of a hostile build script, whose findings Cargo prints although it succeeds. */
const probeScript = () =>
  readFileSync(join(import.meta.dir, '../hostile/build.rs'), 'utf8')
    .replaceAll('eprintln!("', 'println!("cargo:warning=')
    .replace('std::process::exit(1)', 'std::process::exit(0)')

const hogScript =
  'fn main() { let mut all = Vec::new(); for n in 0..4096u32 { all.push(vec![(n % 255) as u8 + 1; 16 << 20]); } println!("{}", all.len()); }\n'

/**
 * Its build scripts run one after the other: a fork bomb of at least `pidsMin` processes, a probe of everything that is
 * not the build's own, and at last one that takes all memory. `port` is of a server on the VM's gateway.
 */
export function hostileProject({ pidsMin, port }: { readonly pidsMin: number; readonly port: number }): SourceFiles {
  const manifest = (name: string, needs: string) =>
    `[package]\nname = "${name}"\nversion = "0.1.0"\nedition = "2021"\n${needs === '' ? '' : `[build-dependencies]\n${needs} = { path = "../${needs}" }\n`}`
  return {
    ...withBuildScript(hogScript),
    'Cargo.toml': `${plainProject['Cargo.toml']}[build-dependencies]\nprobe = { path = "probe" }\n`,
    'Cargo.lock':
      'version = 4\n\n[[package]]\nname = "bomb"\nversion = "0.1.0"\n\n[[package]]\nname = "hello"\nversion = "0.1.0"\ndependencies = [\n "probe",\n]\n\n[[package]]\nname = "probe"\nversion = "0.1.0"\ndependencies = [\n "bomb",\n]\n',
    'probe/Cargo.toml': manifest('probe', 'bomb'),
    'probe/build.rs': probeScript(),
    'probe/port': String(port),
    'probe/src/lib.rs': '',
    'bomb/Cargo.toml': manifest('bomb', ''),
    'bomb/build.rs': bombScript(pidsMin),
    'bomb/src/lib.rs': '',
  }
}

const nativeBuild = `use std::{env, process::Command};

fn run(program: &str, args: &[&str]) -> String {
    let end = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(end.status.success(), "{program}: {}", String::from_utf8_lossy(&end.stderr));
    String::from_utf8_lossy(&end.stdout).trim().to_string()
}

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let build = format!("{out}/cmake");
    run("cmake", &["-S", "native", "-B", &build]);
    run("cmake", &["--build", &build]);
    println!("cargo:rustc-link-search=native={build}");
    println!("cargo:rustc-link-lib=static=native");
    println!("cargo:rustc-link-lib=stdc++");
    let llvm = run("sh", &["-c", "ls -d /usr/lib/llvm-*"]);
    let parse = format!("{out}/parse");
    run("cc", &["native/parse.c", "-o", &parse, &format!("-I{llvm}/include"), &format!("-L{llvm}/lib"), "-lclang"]);
    println!("cargo:rustc-env=PARSED={}", run(&parse, &["native/native.h"]));
    for tool in ["clang", "clang++", "protoc", "nasm", "patch", "python3", "node"] {
        run(tool, &["--version"]);
    }
    run("go", &["version"]);
    for library in ["openssl", "zlib", "sqlite3", "dbus-1", "libudev", "tss2-esys"] {
        run("pkg-config", &["--cflags", "--libs", library]);
    }
}
`

/** A crate whose build script needs cmake, a C++ compiler and libclang, and asks for the other tools and headers. */
export const nativeProject: SourceFiles = {
  'Cargo.toml': '[package]\nname = "native"\nversion = "0.1.0"\nedition = "2021"\n',
  'Cargo.lock': 'version = 4\n\n[[package]]\nname = "native"\nversion = "0.1.0"\n',
  'build.rs': nativeBuild,
  'src/main.rs':
    'extern "C" { fn answer() -> i32; }\nfn main() { println!("{} {}", unsafe { answer() }, env!("PARSED")); }\n',
  'native/CMakeLists.txt':
    'cmake_minimum_required(VERSION 3.20)\nproject(native CXX)\nadd_library(native STATIC native.cpp)\n',
  'native/native.h': 'int answer(void);\n',
  // Without std::stoi: it needs a newer glibc than the machine that runs the artifact may have.
  'native/native.cpp':
    '#include <string>\nextern "C" int answer() { int n = 0; for (char c : std::string("42")) n = n * 10 + (c - 48); return n; }\n',
  'native/parse.c': `#include <clang-c/Index.h>
#include <stdio.h>
static enum CXChildVisitResult visit(CXCursor at, CXCursor parent, CXClientData data) {
  if (clang_getCursorKind(at) == CXCursor_FunctionDecl) puts(clang_getCString(clang_getCursorSpelling(at)));
  return CXChildVisit_Continue;
}
int main(int count, char **names) {
  CXIndex index = clang_createIndex(0, 0);
  CXTranslationUnit unit = clang_parseTranslationUnit(index, names[1], 0, 0, 0, 0, 0);
  if (unit == 0) return 1;
  clang_visitChildren(clang_getTranslationUnitCursor(unit), visit, 0);
  return count - 2;
}
`,
}
