// Service C end to end: a real appliance, real build VMs, real Cargo; a client verifies a result offline, also
// against the boot image.

import { expect, test } from 'bun:test'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  createBuildsAppliance,
  createBuildsClient,
  unpackResult,
  verifyResult,
} from '../../scripts/rigs/build/builds-client.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { loggedKinds, logOptions } from '../rigs/log/appliance-log.ts'

const timeoutMs = 900_000
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

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a source becomes artifacts with evidence that a client verifies; the same source gives the same artifacts',
      async () => {
        // Goal: what service C is for, with nothing in it that stands for something else but the platform.
        const service = await createBuildsAppliance()
        await using appliance = service.appliance
        await appliance.start()
        const { submit, events, result } = await createBuildsClient(appliance)
        const project = join(appliance.directory, 'hello')
        writeProject(project)
        const { exitCode } = Bun.spawnSync(['tar', '-czf', `${project}.tar.gz`, '-C', appliance.directory, 'hello'])
        expect(exitCode).toBe(0)
        const source_data = readFileSync(`${project}.tar.gz`).toString('base64')
        const changed = join(appliance.directory, 'changed')
        writeProject(changed)
        writeFileSync(join(changed, 'more.txt'), 'more')
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
          const bytes = await result(job_id)
          writeFileSync(archive, bytes)
          const asked = ['--source', `${project}.tar.gz`]
          expect(await verifyResult(service, { archive, nonce: used, asked })).toBe('')
          // Its receipt is in the transparency log, which knows nobody's name.
          const inLog = ['--in-log', '--unwitnessed', ...(await logOptions(appliance))]
          expect(await verifyResult(service, { archive, nonce: used, asked: [...asked, ...inLog] })).toBe('')
          expect((await loggedKinds(appliance)).filter(kind => kind === 'build').length).toBe(run + 1)
          outputs.push(join(unpackResult(join(appliance.directory, `unpacked-${run}`), bytes), 'artifacts/hello'))
          // Another nonce is another build.
          expect(await verifyResult(service, { archive, nonce: 'ff', asked })).toStartWith('1: ')
          // Nor is it the build of another source.
          const other = await verifyResult(service, { archive, nonce: used, asked: ['--source', changed] })
          expect(other).toContain('"first_broken": "source"')
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
