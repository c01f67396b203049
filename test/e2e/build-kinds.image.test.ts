// Builds of every kind in real build VMs: hostile ones, which harm nobody; a cancelled one; Cargo twice and Nix,
// verified.

import { expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type BuildsAppliance,
  type BuildsClient,
  createBuildsAppliance,
  createBuildsClient,
  messageOf,
  unpackResult,
  verifyResult,
} from '../../scripts/rigs/build/builds-client.ts'
import {
  archiveOf,
  flakeProject,
  plainProject,
  type SourceFiles,
  vendoredWorkspace,
  withBuildScript,
} from '../../scripts/rigs/build/sources.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { BuildEvent } from '../../src/contract/http/build.ts'
import type { BuildVmReserved } from '../../src/contract/http/build-api.ts'

const timeoutMs = 900_000
const pidsMax = 256
const memoryMiB = 768

/**
 * A dependency's build script, so it runs before the probe: attacks the host, then forks until most of the bound is
 * used.
 */
const bombScript = `use std::{fs, net::TcpStream, path::Path, thread::sleep, time::{Duration, Instant}};
extern "C" { fn fork() -> i32; fn setpgid(pid: i32, group: i32) -> i32; fn kill(pid: i32, signal: i32) -> i32; }
fn processes() -> usize {
    fs::read_dir("/proc").unwrap().filter(|one| one.as_ref().unwrap().file_name().to_str().unwrap().parse::<u32>().is_ok()).count()
}
fn main() {
    for target in ["169.254.88.1:8441", "169.254.88.1:8443", "169.254.88.1:8444", "169.254.88.1:53", "10.88.0.1:22"] {
        if TcpStream::connect_timeout(&target.parse().unwrap(), Duration::from_millis(500)).is_ok() { println!("cargo:warning=REACHED {target}"); }
    }
    for path in ["/dev/virtio-ports", "/dev/vport1p1", "/dev/tpm0", "/dev/sev-guest", "/dev/vda", "/run/strongroom", "/sys/kernel/config",
        "/proc/1/root/run/strongroom", "/var/lib/strongroom"] {
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
    while most < 200 && since.elapsed() < Duration::from_secs(90) { most = most.max(processes()); sleep(Duration::from_millis(50)); }
    let ended = unsafe { kill(-bomb, 9) };
    while processes() > before + 1 && since.elapsed() < Duration::from_secs(180) { sleep(Duration::from_millis(50)); }
    println!("cargo:warning=FORKED {most} {ended}");
}
`

const hostileProject: SourceFiles = {
  ...withBuildScript(readFileSync(join(import.meta.dir, '../rigs/hostile/build.rs'), 'utf8')),
  // Port of the proxy on the host.
  port: '8444',
  'Cargo.toml': `${plainProject['Cargo.toml']}[build-dependencies]\nbomb = { path = "bomb" }\n`,
  'Cargo.lock':
    'version = 4\n\n[[package]]\nname = "bomb"\nversion = "0.1.0"\n\n[[package]]\nname = "hello"\nversion = "0.1.0"\ndependencies = [\n "bomb",\n]\n',
  'bomb/Cargo.toml': '[package]\nname = "bomb"\nversion = "0.1.0"\nedition = "2021"\n',
  'bomb/build.rs': bombScript,
  'bomb/src/lib.rs': '',
}

const memoryHog = withBuildScript(
  'fn main() { let mut all = Vec::new(); for n in 0..4096u32 { all.push(vec![(n % 255) as u8 + 1; 16 << 20]); } println!("{}", all.len()); }',
)
const endless = withBuildScript('fn main() { loop { std::thread::sleep(std::time::Duration::from_secs(1)); } }')

const requestOf = (nonce: string, files: SourceFiles) => ({
  nonce,
  source_data: Buffer.from(archiveOf(files)).toString('base64'),
})

/** Text after a word in a build's output. */
const said = (events: readonly BuildEvent[], word: string) =>
  events.flatMap(event => {
    const message = event.type === 'build' ? messageOf(event) : ''
    const at = message.search(new RegExp(`(?:^| )${word} `))
    return at === -1
      ? []
      : [
          message
            .slice(at)
            .trim()
            .slice(word.length + 1),
        ]
  })

/** Takes the time of one step, for whoever reads the test's output. */
async function timed<T>(name: string, work: () => Promise<T>): Promise<T> {
  const startedMs = performance.now()
  const result = await work()
  process.stdout.write(`${name}: ${Math.round(performance.now() - startedMs)} ms\n`)
  return result
}

async function hostileBuilds(client: BuildsClient): Promise<void> {
  const [probe, hog] = await Promise.all([
    client.submit(requestOf('01', hostileProject)),
    client.submit(requestOf('02', memoryHog)),
  ])
  const [probed, hogged] = await Promise.all([client.events(probe.job_id), client.events(hog.job_id)])
  expect(probed.at(-1)).toMatchObject({ type: 'complete', result: { status: 'failed', error_type: 'build_failed' } })
  expect(probed.filter(event => messageOf(event).includes('PROBED'))).not.toEqual([])
  expect([...said(probed, 'OPEN'), ...said(probed, 'REACHED')]).toEqual([])
  expect(said(probed, 'DEVICES')).toEqual(['fd full null random shm stderr stdin stdout tty urandom zero'])
  expect(said(probed, 'INTERFACES')).toEqual(['lo'])
  expect(said(probed, 'PROCESSES')).toEqual(['build-script-bu bwrap cargo'])
  const [most = 0, ended] = (said(probed, 'FORKED')[0] ?? '').split(' ').map(Number)
  // It met the bound, which is not its own doing.
  expect(most).toBeGreaterThan(pidsMax / 2)
  expect(most).toBeLessThanOrEqual(pidsMax)
  expect(ended).toBe(0)
  expect(hogged.at(-1)).toMatchObject({
    type: 'complete',
    result: { status: 'failed', error_type: 'limit_exceeded', error: expect.stringContaining('bytes of memory') },
  })
}

async function cancelledBuild({ appliance }: BuildsAppliance, client: BuildsClient): Promise<void> {
  const { job_id } = await client.submit(requestOf('03', endless))
  const seen: BuildEvent[] = []
  for await (const { data } of client.stream(job_id)) {
    seen.push(data)
    if (data.type !== 'build' || !data.msg.includes('Compiling')) continue
    const { vm_id } = await client.record(job_id)
    expect(holdings(appliance.stateDir).directories).toContain(vm_id ?? '')
    const response = await client.ask(`/build/${job_id}`, { method: 'DELETE' })
    expect([response.status, await response.json()]).toMatchObject([200, { state: 'cancelled' }])
  }
  expect(seen.at(-1)).toMatchObject({ type: 'complete', result: { status: 'failed', error_type: 'cancelled' } })
  await until('the VM of the cancelled build is gone', 60_000, () =>
    Bun.deepEquals(holdings(appliance.stateDir), NOTHING),
  )
}

type Good = { readonly id: string; readonly nonce: string; readonly files: SourceFiles }

async function goodResult(service: BuildsAppliance, client: BuildsClient, { id, nonce, files }: Good): Promise<string> {
  const events = await client.events(id)
  expect(events.at(-1)).toEqual({ type: 'complete', result: { status: 'ok' } })
  const archive = join(service.appliance.directory, `${id}.tar.gz`)
  const result = await client.result(id)
  writeFileSync(archive, result)
  const source = join(service.appliance.directory, `${id}.source.tar.gz`)
  writeFileSync(source, archiveOf(files))
  expect(await verifyResult(service, { archive, nonce, asked: ['--source', source] })).toBe('')
  return unpackResult(join(service.appliance.directory, `unpacked-${id}`), result)
}

/** Nonces have all their bytes, so that evidence.json holds a report, too. */
async function goodBuilds(service: BuildsAppliance, client: BuildsClient): Promise<void> {
  const nonceOf = (last: string) => `00112233445566778899aabbccddee${last}`
  const reserved = (await (await client.ask('/vm', { method: 'POST' })).json()) as BuildVmReserved
  const below = `/vm/${reserved.vm_id}`
  const workspace = vendoredWorkspace()
  const [item, other] = await Promise.all([
    client.submit(requestOf(nonceOf('01'), flakeProject), below),
    client.submit(requestOf(nonceOf('02'), flakeProject), below),
  ])
  // One organization has a quarter of the uploads at a time, which is two.
  const twice = await client.submit({ ...requestOf(nonceOf('03'), workspace), reproduce: true })
  expect([item.status, other.status].sort()).toEqual([200, 409])
  expect(twice.status).toBe(200)
  const [flake, nonce] = item.status === 200 ? [item, nonceOf('01')] : [other, nonceOf('02')]
  expect((await client.record(flake.job_id)).vm_id).toBe(reserved.vm_id)
  const [nix, cargo] = await Promise.all([
    goodResult(service, client, { id: flake.job_id, nonce, files: flakeProject }),
    goodResult(service, client, { id: twice.job_id, nonce: nonceOf('03'), files: workspace }),
  ])
  expect(readFileSync(join(nix, 'artifacts/hello'), 'utf8')).toBe('hello from nix\n')
  const slsa = JSON.parse(readFileSync(join(cargo, 'attestations/slsa.json'), 'utf8')) as {
    subject: { name: string; annotations: { reproducible: boolean } }[]
  }
  const reproducible = slsa.subject.map(({ name, annotations }) => [name, annotations.reproducible] as const)
  expect(Object.fromEntries(reproducible)).toEqual({
    app: true,
    moment: false,
    'libclib.a': true,
    'libclib.so': true,
  })
  expect(Bun.spawnSync([join(cargo, 'artifacts/app')]).stdout.toString()).toBe('85\n')
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'hostile sources harm neither daemon nor the next build, and each toolchain makes what a client verifies',
      async () => {
        // Goal: the bounds hold with everything real: memory controller, devices of a VM, its agent, its network.
        const service = await createBuildsAppliance(
          `build_memory_mib = ${memoryMiB}\nbuild_pids = ${pidsMax}\nfetch_hosts = ["mirror.test"]\nconcurrent_max = 2`,
        )
        await using appliance = service.appliance
        await appliance.start()
        const pid = appliance.pid()
        const client = await createBuildsClient(appliance)
        await timed('a probe with a fork bomb, and a memory hog', () => hostileBuilds(client))
        await timed('a build that is cancelled', () => cancelledBuild(service, client))
        await timed('a flake in a reserved VM, and a workspace twice', () => goodBuilds(service, client))
        await until('all VMs are gone', 60_000, () => Bun.deepEquals(holdings(appliance.stateDir), NOTHING))
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
        // The same daemon all along.
        expect(() => process.kill(pid, 0)).not.toThrow()
        expect(appliance.pid()).toBe(pid)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
