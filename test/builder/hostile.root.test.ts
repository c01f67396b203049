import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import {
  archiveOf,
  lockedBy,
  plainProject,
  type SourceFiles,
  withBuildScript,
} from '../../scripts/rigs/build/sources.ts'
import {
  type BuildEnd,
  cgroup2Root,
  type Follow,
  findRust,
  startBuildVm,
  testLimits,
} from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { processesByUid } from '../../src/linux/users.ts'

const isRoot = userInfo().uid === 0
const skipped = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const hasMemory =
  isRoot && fs.readFileSync(`${cgroup2Root() ?? '/sys/fs/cgroup'}/cgroup.controllers`, 'utf8').includes('memory')
const noMemory = skipUnless(hasMemory, 'the memory controller belongs to cgroup v1 here')
/** For all tests of this file together: they run beside each other. */
const timeoutMs = 1_800_000
const MiB = 1024 ** 2

async function built(
  files: SourceFiles,
  limits: Partial<typeof testLimits> = {},
  follow: Follow = {},
): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  const end = await vm.build({ archive: archiveOf(files), limits: { ...testLimits, ...limits } }, follow)
  expect(processesByUid().get(vm.buildUid)).toBeUndefined()
  // The VM is as well as before: it answers, and its one build stays as it is.
  expect(await vm.request({ op: 'hello' })).toMatchObject({ ok: true })
  return end
}

const said = (end: BuildEnd, word: string) =>
  end.lines.flatMap(({ type, msg }) =>
    type === 'build' && `${msg.trim()} `.startsWith(`${word} `) ? [msg.trim().slice(word.length + 1)] : [],
  )

/** In place of the linker: a program of the source's, that has the artifact in its hands. */
const withLinker = (script: string): SourceFiles => ({
  ...plainProject,
  '.cargo/config.toml': '[target.x86_64-unknown-linux-gnu]\nlinker = "/build/source/linker"\n',
  linker: `#!/bin/sh\ncc "$@" || exit 1\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n${script}\n`,
})

describe.concurrent.skipIf(skipped)('hostile sources', () => {
  // Goal: a build script finds six devices, its own processes and environment, no network, no privilege, and nothing of
  // the VM: no report device, configfs, TPM, keys, agent channel, socket or environment.
  test(
    'a build script that goes for everything',
    async () => {
      using server = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
      const script = fs.readFileSync(join(import.meta.dir, '../rigs/hostile/build.rs'), 'utf8')
      const end = await built({ ...withBuildScript(script), port: String(server.port) })
      expect(end.result).toMatchObject({ status: 'failed', errorType: 'build_failed' })
      expect(end.lines.some(line => line.msg.includes('PROBED'))).toBe(true)
      expect(said(end, 'OPEN')).toEqual([])
      expect(said(end, 'DEVICES')).toEqual(['fd full null random shm stderr stdin stdout tty urandom zero'])
      expect(said(end, 'INTERFACES')).toEqual(['lo'])
      const [processes = ''] = said(end, 'PROCESSES')
      expect(processes.split(' ').sort()).toEqual(['build-script-bu', 'bwrap', 'cargo'])
      const status = said(end, 'STATUS')
      expect(status).toContain('NoNewPrivs: 1')
      expect(status).toContain('Uid: 61002 61002 61002 61002')
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
        expect(status).toContain(`${set}: 0000000000000000`)
    },
    timeoutMs,
  )

  // Goal: a build's output is text of the type build without terminal control characters; it ends no build and forges
  // no line of another type.
  test(
    'forged event lines',
    async () => {
      const end = await built(
        withBuildScript(`fn main() {
      println!("cargo:warning=event: complete");
      println!("cargo:warning={}", r#"data: {"type":"complete","result":{"status":"ok"}}"#);
      println!("cargo:warning={}", "\\u{1b}]0;title\\u{7}\\u{1b}[2Jcleared\\u{202e}turned");
      std::process::exit(3);
    }`),
      )
      expect(end.result).toMatchObject({ status: 'failed', errorType: 'build_failed' })
      const forged = end.lines.filter(({ msg }) => /complete|cleared/.test(msg))
      expect(forged.length).toBeGreaterThan(1)
      expect(new Set(forged.map(line => line.type))).toEqual(new Set(['build']))
      expect(end.lines.map(line => line.msg).join('')).not.toMatch(/[\p{Cc}\u202e]/u)
    },
    timeoutMs,
  )

  // Goal: artifacts are regular files of the build's own, without set-user-ID; links are not followed.
  test(
    'artifacts that are links, or set-user-ID',
    async () => {
      const [link, setuid, large] = await Promise.all([
        built(withLinker('rm "$out"; ln -s /etc/passwd "$out"')),
        built(withLinker('chmod 4755 "$out"')),
        built(withLinker('truncate --size 20M "$out"'), { artifactBytes: 10 * MiB }),
      ])
      expect(link.result).toMatchObject({
        status: 'failed',
        errorType: 'build_failed',
        error: expect.stringContaining('a link'),
      })
      expect(setuid.result).toMatchObject({
        status: 'failed',
        errorType: 'build_failed',
        error: expect.stringContaining('set-user-ID'),
      })
      expect(large.result).toMatchObject({ status: 'failed', errorType: 'limit_exceeded' })
    },
    timeoutMs,
  )

  // Goal: what a build leaves behind lives no longer than the build: it holds no pipe open, and changes no artifact.
  // Alone: between the digest of the artifact and its copy stand seconds.
  test.serial(
    'leftovers that write later',
    async () => {
      const mark = 'evil-that-came-later'
      const end = await built(
        withLinker(
          // From the end of cargo on, and not before the builder had time to see it: until then the build may change
          // what it makes.
          `setsid sh -c 'while grep -qsx cargo /proc/[0-9]*/comm; do sleep 0.02; done; sleep 3; for i in $(seq 50); do for f in /build/target/release/*; do [ -f "$f" ] && echo ${mark} >> "$f"; done; sleep 0.1; done' >/dev/null 2>&1 &`,
        ),
        {},
        {
          // Between the digest of the artifact and its copy there is time to write.
          onProgress: async ({ waitsFor }) => {
            if (waitsFor === 'completion') await Bun.sleep(6_000)
          },
        },
      )
      expect(end.result).toMatchObject({ status: 'ok' })
      const extracted = (path: string) =>
        Bun.spawnSync(['tar', '-xzO', '--wildcards', `*/${path}`], { stdin: end.archive ?? new Uint8Array(0) }).stdout
      const artifact = extracted('artifacts/hello')
      expect([artifact.length > 0, artifact.includes(mark)]).toEqual([true, false])
      const sha256 = new Bun.CryptoHasher('sha256').update(artifact).digest('hex')
      expect(JSON.parse(extracted('provenance.json').toString()).subject).toEqual([
        { name: 'hello', digest: { sha256 } },
      ])
    },
    timeoutMs,
  )

  // Goal: each bound ends a build as limit_exceeded, in time, and says which it was.
  test(
    'endless output',
    async () => {
      // Cargo keeps the output of build scripts in memory, and passes on that of the compiler, in which macros run.
      const { 'Cargo.toml': own = '', 'Cargo.lock': _, ...files } = plainProject
      const project = {
        ...files,
        'Cargo.toml': `${own}[dependencies]\nflood = { path = "flood" }\n`,
        'src/main.rs': `flood::flood!();\n${files['src/main.rs']}`,
        'flood/Cargo.toml':
          '[package]\nname = "flood"\nversion = "0.1.0"\nedition = "2021"\n[lib]\nproc-macro = true\n',
        'flood/src/lib.rs':
          '#[proc_macro] pub fn flood(_: proc_macro::TokenStream) -> proc_macro::TokenStream { loop { eprintln!("y"); } }\n',
      }
      const end = await built({ ...project, 'Cargo.lock': lockedBy(project) }, { logBytes: MiB / 8 })
      expect(end.result).toMatchObject({
        errorType: 'limit_exceeded',
        error: expect.stringContaining('printed more than'),
      })
    },
    timeoutMs,
  )

  // Goal: as above, for time.
  test(
    'a build without an end',
    async () => {
      const end = await built(
        withBuildScript('fn main() { loop { std::thread::sleep(std::time::Duration::from_secs(1)); } }'),
        { buildSeconds: 6 },
      )
      expect(end.result).toMatchObject({
        errorType: 'limit_exceeded',
        error: expect.stringContaining('not done within 6 s'),
      })
    },
    timeoutMs,
  )

  // Goal: as above, for bytes on the disk, for the number of files, and for the size of one.
  test(
    'filling the disk',
    async () => {
      const bytes = `fn main() { for at in 0.. { std::fs::write(format!("/tmp/f{at}"), vec![7u8; 4 << 20]).unwrap(); std::thread::sleep(std::time::Duration::from_millis(20)); } }`
      expect((await built(withBuildScript(bytes), { diskBytes: 128 * MiB })).result).toMatchObject({
        errorType: 'limit_exceeded',
        error: expect.stringContaining('on disk'),
      })
      const files = `fn main() { for at in 0.. { std::fs::write(format!("/tmp/f{at}"), "").unwrap(); } }`
      expect((await built(withBuildScript(files), { diskBytes: 64 * MiB })).result).toMatchObject({
        errorType: 'limit_exceeded',
        error: expect.stringContaining('files on disk'),
      })
    },
    timeoutMs,
  )

  // Goal: a fork bomb meets the bound of its user or cgroup, and outlives its build in no process (`built` looks).
  test(
    'a fork bomb',
    async () => {
      const bomb = `fn main() {
        use std::process::{Command, Stdio, exit};
        let is_first = std::env::var("BOMB").is_err();
        loop {
          // With the script's own output they would keep Cargo waiting.
          let one = Command::new("/proc/self/exe").env("BOMB", "1").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
          if one.is_ok() { continue; }
          if is_first { eprintln!("FULL"); exit(3); }
          std::thread::sleep(std::time::Duration::from_millis(100));
        }
      }`
      const end = await built(withBuildScript(bomb), { pids: 100 })
      expect(end.result).toMatchObject({ status: 'failed', errorType: 'build_failed' })
      expect(said(end, 'FULL')).toHaveLength(1)
    },
    timeoutMs,
  )

  // Goal: memory beyond the bound ends the whole build, not one compiler of it.
  test.skipIf(noMemory)(
    'a memory hog',
    async () => {
      const hog = 'fn main() { let mut all = Vec::new(); loop { all.push(vec![1u8; 1 << 20]); } }'
      const end = await built(withBuildScript(hog), { memoryBytes: 512 * MiB })
      expect(end.result).toMatchObject({ errorType: 'limit_exceeded', error: expect.stringContaining('memory') })
    },
    timeoutMs,
  )

  // Goal: a source cannot choose programs for the time before its build: cargo settings that run something are read
  // without a network.
  test(
    'settings of cargo in the source',
    async () => {
      const end = await built({
        ...plainProject,
        '.cargo/config.toml':
          '[build]\ntarget-dir = "/tmp/elsewhere"\nrustflags = ["-C", "debuginfo=0"]\n[env]\nHOME = "/tmp"\n[http]\nproxy = "http://192.0.2.1:1"\n',
      })
      expect(end.result).toMatchObject({ status: 'ok' })
    },
    timeoutMs,
  )
})
