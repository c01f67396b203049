// Service C end to end: a real appliance, real build VMs, real Cargo; a result that a client verifies offline, also against the boot image.

import { expect, test } from 'bun:test'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, builtImage, createAppliance, imageDir } from '../rigs/appliance.ts'
import { inOwnNetns } from '../rigs/netns.ts'

const timeoutMs = 900_000
const builds = 'https://127.0.0.1:8443'
const nonce = '00112233445566778899aabbccddeeff'

/** A Cargo project without dependencies, with a build script that goes for what it must not reach. */
function writeProject(directory: string): void {
  mkdirSync(join(directory, 'src'), { recursive: true })
  writeFileSync(
    join(directory, 'Cargo.toml'),
    '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\n',
  )
  writeFileSync(join(directory, 'Cargo.lock'), 'version = 3\n\n[[package]]\nname = "hello"\nversion = "0.1.0"\n')
  writeFileSync(
    join(directory, 'build.rs'),
    `use std::path::Path;
fn main() {
    let reached: Vec<&str> = ["/dev/sev-guest", "/dev/tpm0", "/dev/vda", "/dev/vdb", "/dev/vdc", "/dev/virtio-ports",
        "/run/strongroom", "/sys/kernel/config", "/sys/class/net/eth0", "/proc/1/root/run/strongroom"]
        .into_iter().filter(|path| Path::new(path).exists()).collect();
    let network = std::net::TcpStream::connect_timeout(&"169.254.88.1:8444".parse().unwrap(), std::time::Duration::from_secs(2)).is_ok();
    println!("cargo:rustc-env=REACHED={:?} {}", reached, network);
}
`,
  )
  writeFileSync(join(directory, 'src/main.rs'), 'fn main() { println!("reached: {}", env!("REACHED")); }\n')
}

async function client(appliance: Appliance) {
  await appliance.cli('org', 'create', 'acme')
  const { key } = await appliance.admin<{ key: string }>('key', 'create', 'acme')
  const tls = { ca: readFileSync(join(appliance.stateDir, 'ca/ca.pem'), 'utf8') }
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(builds + path, { ...init, tls, headers: { Authorization: `Bearer ${key}`, ...init.headers } })
  return {
    ask,
    submit: async (body: object) => {
      const response = await ask('/build', { method: 'POST', body: JSON.stringify(body) })
      return { status: response.status, ...((await response.json()) as { job_id: string; build_url: string }) }
    },
    /** The data of every event until the stream closes. */
    events: async (id: string): Promise<{ type: string; msg?: string; result?: unknown }[]> => {
      const text = await (await ask(`/build/${id}/events`)).text()
      return [...text.matchAll(/^data: (.*)$/gm)].map(match => JSON.parse(match[1] ?? ''))
    },
  }
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a source becomes artifacts with evidence that a client verifies; the same source gives the same artifacts',
      async () => {
        // Goal: what service C is for, with nothing in it that stands for something else but the platform.
        const builder = await builtImage('builder')
        const settings = `image_dir = ${JSON.stringify(builder)}\nmemory_mib = 2048\nscratch_gib = 4`
        await using appliance = await createAppliance(settings, 'builds', await imageDir(), '', {
          listen: 'builds = "127.0.0.1:8443"',
        })
        await appliance.start()
        const { ask, submit, events } = await client(appliance)
        const project = join(appliance.directory, 'hello')
        writeProject(project)
        const { exitCode } = Bun.spawnSync(['tar', '-czf', `${project}.tar.gz`, '-C', appliance.directory, 'hello'])
        expect(exitCode).toBe(0)
        const source_data = readFileSync(`${project}.tar.gz`).toString('base64')
        const rootPem = join(appliance.stateDir, 'simulator/root.pem')
        const outputs: string[] = []
        for (const [run, used] of [nonce, `${nonce.slice(0, 30)}00`].entries()) {
          const startedMs = performance.now()
          const { status, job_id } = await submit({ nonce: used, source_data, source_name: 'hello.tar.gz' })
          expect(status).toBe(200)
          const seen = await events(job_id)
          process.stdout.write(`build ${run + 1}: ${Math.round(performance.now() - startedMs)} ms\n`)
          expect(seen.at(-1)).toEqual({ type: 'complete', result: { status: 'ok' } })
          expect(new Set(seen.map(event => event.type))).toEqual(
            new Set(['queued', 'vm', 'init', 'detect', 'fetch', 'build', 'provenance', 'attest', 'host', 'complete']),
          )
          const archive = join(appliance.directory, `result-${run}.tar.gz`)
          writeFileSync(archive, Buffer.from(await (await ask(`/build/${job_id}/result`)).arrayBuffer()))
          const verified = await appliance.cli(
            ...['verify', 'build', archive, '--nonce', used, '--trust-simulated-root', rootPem],
            ...['--image', builder, '--json'],
          )
          expect([verified.exitCode, verified.exitCode === 0 ? '' : verified.stdout + verified.stderr]).toEqual([0, ''])
          const unpacked = join(appliance.directory, `unpacked-${run}`)
          mkdirSync(unpacked)
          Bun.spawnSync(['tar', '-xzf', archive, '-C', unpacked])
          outputs.push(join(unpacked, 'hello/artifacts/hello'))
          // Another nonce is another build.
          const replayed = await appliance.cli(
            'verify',
            'build',
            archive,
            '--nonce',
            'ff',
            '--trust-simulated-root',
            rootPem,
          )
          expect(replayed.exitCode).toBe(1)
        }
        expect(outputs.map(path => existsSync(path))).toEqual([true, true])
        const [first, second] = outputs.map(path => readFileSync(path))
        expect(first?.equals(second ?? Buffer.alloc(0))).toBe(true)
        expect(Bun.spawnSync([outputs[0] ?? '']).stdout.toString()).toBe('reached: [] false\n')
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
