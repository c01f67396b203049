// Goal: the gateway VM's image boots to its gateway, keeps it running, allows no login, and prints only its stages. The
// real gateway in it is in test/e2e/enclave.image.test.ts.

import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { buildTestImage, programBench } from '../../scripts/rigs/build/image-build.ts'
import { bootGuest } from '../../scripts/rigs/guest/boot.ts'
import type { EnclaveFacts } from '../rigs/enclave/program.ts'
import { stagesOf } from '../rigs/launch/vm-consoles.ts'

const bootTimeoutMs = 300_000

/** The rest of a console line after `strongroom: NAME `. */
function told(serial: string, name: string) {
  const line = serial.split(/\r?\n/).find(part => part.startsWith(`strongroom: ${name} `))
  return line === undefined ? undefined : JSON.parse(line.slice(`strongroom: ${name} `.length))
}

// Goal: from inside, as root: only measured programs, no listener, working sandbox and model disks; a killed gateway
// restarts, ended processes are reaped, the machine powers off.
test('what runs in the VM, and what does not', async () => {
  await using bench = await programBench(join(import.meta.dir, '../rigs/enclave/program.ts'))
  const image = await buildTestImage({
    recipe: 'inference',
    cacheDir: join(bench.dir, 'cache'),
    executable: bench.executable,
    shared: ['downloads', 'bases'],
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
  expect(facts.environment.toSorted()).toEqual([
    'BUN_GC_TIMER_INTERVAL=10000',
    'HOME=/',
    'LANG=C.UTF-8',
    'PATH=/usr/sbin:/usr/bin',
  ])
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
