// Goal: the gateway VM's image boots to its gateway, keeps it running, allows no login, and prints only its stages.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildCachedImage, buildTestImage, programBench } from '../../scripts/rigs/build/image-build.ts'
import { bootGuest } from '../../scripts/rigs/guest/boot.ts'
import type { EnclaveFacts } from '../rigs/enclave/program.ts'
import { connectAgent } from '../rigs/guest/booted-guest.ts'

const bootTimeoutMs = 300_000

let dir = ''
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'enclave-boot-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

/** The rest of a console line after `strongroom: NAME `. */
function told(serial: string, name: string) {
  const line = serial.split(/\r?\n/).find(part => part.startsWith(`strongroom: ${name} `))
  return line === undefined ? undefined : JSON.parse(line.slice(`strongroom: ${name} `.length))
}

/** Lines of the console after the firmware's and the kernel's own, which end where the initrd begins. */
function stagesOf(serial: string): string[] {
  const lines = serial.split(/\r?\n/)
  const first = lines.findIndex(line => line.startsWith('strongroom: '))
  return lines.slice(first === -1 ? lines.length : first).filter(line => line !== '')
}

// Goal: from inside, as root: only measured programs, no listener, working sandbox and model disks; a killed gateway
// restarts, ended processes are reaped, the machine powers off.
test('what runs in the VM, and what does not', async () => {
  await using bench = await programBench(join(import.meta.dir, '../rigs/enclave/program.ts'))
  const image = await buildTestImage({
    recipe: 'inference',
    cacheDir: join(bench.dir, 'cache'),
    executable: bench.executable,
    shared: ['downloads'],
    umask: '022',
    env: {},
  })
  const root = join(image, 'root.img')
  const second = [
    ...['-drive', `if=none,id=model,format=raw,readonly=on,file=${root}`],
    ...['-device', 'virtio-blk-pci,drive=model,serial=model,disable-legacy=on'],
  ]
  await using guest = await bootGuest(image, root, { devices: second })
  const ended = await guest.ends(bootTimeoutMs)
  const serial = guest.serial()
  expect({ ended, serial }).toMatchObject({ ended: true })
  const facts: EnclaveFacts = told(serial, 'facts')

  expect(facts.argv).toEqual(['/usr/bin/strongroom-enclave', 'serve'])
  expect(facts.environment.toSorted()).toEqual(['HOME=/', 'LANG=C.UTF-8', 'PATH=/usr/sbin:/usr/bin'])
  expect(facts.oomScoreAdjust).toBe(-900)
  expect(facts.pid1).toBe('/usr/bin/strongroom-enclave')
  expect(facts.processes).toEqual(['/usr/bin/strongroom-enclave init', '/usr/bin/strongroom-enclave serve'])
  expect(facts.listening).toEqual([])
  expect(facts.found).toEqual([])
  expect(facts.authorities).toBeGreaterThan(50)
  expect(facts.writableAndExecutable).toEqual([])
  expect(facts.tries).toEqual({
    'write to the root': 'EROFS',
    'write to the root of the worker': 'EROFS',
    'run from /tmp': 'EACCES',
    'write to the hosts': 'done',
    'write to the resolvers': 'done',
    'allow modules again': 'EINVAL',
  })
  expect(facts.settings).toEqual({
    lockdown: 'none integrity [confidentiality]',
    modules: '1',
    sysrq: '0',
    printk: '1',
    routerAdvertisements: '0',
    hostname: 'strongroom',
  })
  expect(facts.workerRoot).toEqual({ dev: [], proc: [], run: [], sys: [], tmp: [] })
  expect(facts.sandbox).toMatchObject({ exitCode: 0, said: expect.stringContaining('version') })
  expect(facts.modelDisk.opened).toBe('done')
  expect(facts.modelDisk.refused).not.toBe('done')

  expect(told(serial, 'orphans')).toEqual({ adopted: 3, uncollected: [] })
  const stages = stagesOf(serial).map(line => line.replace(/^(strongroom: (?:facts|orphans)) .*/, '$1'))
  expect(stages.filter(line => !/^\[ *[\d.]+\] reboot: /.test(line))).toEqual([
    'strongroom: facts',
    'strongroom: gateway ended (exit code 137), next start in 1 s',
    'strongroom: orphans',
    'strongroom: powering off',
  ])
}, 600_000)

// Goal: the built image greets its host, takes its addresses, and powers off on request.
test('the gateway of the real image says hello and powers off', async () => {
  const image = await buildCachedImage('inference')
  const port = join(dir, 'agent')
  const devices = [
    ...['-device', 'virtio-serial-pci,id=serial', '-chardev', `socket,id=agent,path=${port},server=on,wait=off`],
    ...['-device', 'virtserialport,bus=serial.0,chardev=agent,name=strongroom.agent.0'],
    ...['-netdev', 'user,id=net,restrict=on', '-device', 'virtio-net-pci,netdev=net,disable-legacy=on'],
  ]
  const startedMs = performance.now()
  await using guest = await bootGuest(image, join(image, 'root.img'), { devices })
  const agent = await connectAgent(port, [])
  const { hello } = await agent.ask({ op: 'hello' })
  process.stderr.write(`hello after ${((performance.now() - startedMs) / 1000).toFixed(1)} s\n`)
  expect(hello).toMatchObject({ sshHostKey: null, claimId: null, platform: 'none' })
  const network = { address: '10.0.2.15', gateway: '10.0.2.2', mtuBytes: 1500, resolvers: [] }
  expect(await agent.ask({ op: 'network', network })).toMatchObject({ ok: true })
  await agent.ask({ op: 'shutdown' })
  agent.end()
  expect({ ended: await guest.ends(bootTimeoutMs), serial: guest.serial() }).toMatchObject({ ended: true })
  const stages = stagesOf(guest.serial()).filter(line => !/^\[ *[\d.]+\] reboot: /.test(line))
  expect(stages.map(line => line.replace(/ version .*/, ' version'))).toEqual([
    'strongroom: gateway started, version',
    'strongroom: gateway ready',
    'strongroom: powering off',
  ])
}, 600_000)
