// Goal: an intact image boots to its agent and powers off on request, and what a hostile host changes in it, or gives
// a guest besides what is measured, is of no use to it: the root, the scratch disk, and ACPI tables. One image, many
// hosts; a boot ends once it has shown what it is about.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdir, open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { MachineManifest } from '../../../scripts/image/manifest.ts'
import {
  agentStarted,
  buildTestImage,
  type ImageBench,
  imageBench,
  keptTestImages,
  run,
} from '../../../scripts/rigs/build/image-build.ts'
import { bootGuest } from '../../../scripts/rigs/guest/boot.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { amlRan, debugPort, hostileTable } from '../../rigs/hostile/acpi.ts'

/** One boot takes a tenth of it where the machine has nothing else to do. */
const bootTimeoutMs = 240_000
const timeoutMs = 3 * bootTimeoutMs
const buildTimeoutMs = 900_000
const mib = 1_048_576
const marker = 'what only the guest may know'
const planted = 'what the host has planted'
/** The guest says what it sees of its root, leaves something there that the host can look for, and powers off. */
const program = `
import { existsSync, statfsSync, writeFileSync, openSync, fsyncSync, readFileSync } from 'node:fs'
const { execSync } = require('node:child_process')
const mounts = readFileSync('/proc/mounts', 'utf8').split('\\n')
for (const line of mounts) if (/ (ext4|overlay) /.test(line)) console.log('mounted ' + line)
const { blocks, bsize } = statfsSync('/home/agent')
console.log('home of ' + Math.round((blocks * bsize) / ${mib}) + ' MiB')
console.log('setuid: [' + execSync('find / -xdev -type f -perm /6000 2>/dev/null || true').toString().trim() + ']')
writeFileSync('/home/agent/marker', '${marker} '.repeat(40_000))
fsyncSync(openSync('/home/agent/marker', 'r'))
const command = readFileSync('/proc/cmdline', 'utf8')
const key = execSync('dmsetup table --showkeys scratch 2>/dev/null || true').toString().split(' ')[4] ?? ''
console.log('no AML: ' + !existsSync('/sys/firmware/acpi'))
const environment = readFileSync('/proc/1/environ', 'utf8')
console.log('key: ' + key.length + ' digits, told elsewhere: ' + (key !== '' && (command + environment).includes(key)))
console.log('all is said')
setTimeout(() => process.kill(1, 'SIGUSR2'), 5_000)
`

/** Arguments of QEMU for a scratch disk. */
const disk = (path: string, more = '') => [
  ...['-blockdev', `driver=file,node-name=scratch-file,filename=${path}${more}`],
  ...['-blockdev', `driver=raw,node-name=scratch,file=scratch-file${more}`],
  ...['-device', 'virtio-blk-pci,drive=scratch,serial=scratch,discard=on'],
]

let bench: ImageBench
/** Directory of the image. */
let image = ''
let root = ''
let manifest: MachineManifest
/** A disk that the host has prepared. */
let preparedDisk = ''

beforeAll(async () => {
  bench = await imageBench(program)
  image = await buildTestImage({
    recipe: 'instance',
    cacheDir: keptTestImages,
    executable: bench.executable,
    shared: ['downloads', 'bases'],
    umask: '022',
    env: {},
  })
  manifest = Value.Decode(MachineManifest, await Bun.file(join(image, 'manifest.json')).json())
  root = join(image, manifest.files.root.path)
  preparedDisk = await prepared(bench.dir)
}, buildTimeoutMs)
afterAll(() => bench?.[Symbol.asyncDispose]())

const verify = (path: string) =>
  run(['veritysetup', 'verify', `--hash-offset=${manifest.verity.hashOffset}`, path, path, manifest.rootHash], {})

/** Boots the image until the console has all of `texts`. `ends`: and until it has powered off. */
async function boot(devices: readonly string[], texts: readonly string[], { ends = false } = {}): Promise<string> {
  await using guest = await bootGuest(image, root, { devices })
  for (const text of texts) {
    const shown = await guest.shows(text, bootTimeoutMs)
    expect({ text, shown, serial: guest.serial() }).toMatchObject({ shown: true })
  }
  if (ends) expect({ ended: await guest.ends(bootTimeoutMs), serial: guest.serial() }).toMatchObject({ ended: true })
  return guest.serial()
}
/** The console shows a line letter by letter, so the last one comes after the others. */
const wholeBoot = [agentStarted, 'all is said']

test(
  'a disk that the host has prepared: nothing of it is seen, and what the guest writes cannot be read',
  async () => {
    // Goal: the intact root also verifies, boots to its agent and powers off on request.
    await verify(root)
    expect(await holds(preparedDisk, planted)).toBe(true)
    const ciphertexts = [await superblock(preparedDisk)]
    const serial = await boot(disk(preparedDisk, ',discard=unmap'), wholeBoot, { ends: true })
    expect(serial).toContain('strongroom: scratch disk: 1024 MiB, encrypted and authenticated')
    expect(serial).toMatch(/mounted overlay \/ overlay \S*nodev/)
    expect(serial).toMatch(/mounted \S+ \/var\/lib\/strongroom\/scratch ext4 rw,nosuid,nodev/)
    // A tmpfs would have half of the 1 GiB memory.
    expect(Number(/home of (\d+) MiB/.exec(serial)?.[1])).toBeGreaterThan(900)
    expect(serial).toContain('setuid: []')
    expect(serial).toContain('key: 32 digits, told elsewhere: false')
    expect(serial).toContain('strongroom: powering off')
    expect(await holds(preparedDisk, marker)).toBe(false)
    ciphertexts.push(await superblock(preparedDisk))
    // Each boot draws a key: the same file system is other bytes.
    await boot(disk(preparedDisk, ',discard=unmap'), ['encrypted and authenticated'])
    ciphertexts.push(await superblock(preparedDisk))
    expect(new Set(ciphertexts).size).toBe(3)
  },
  timeoutMs,
)

test(
  'goal: without a disk, and with code in an ACPI table, the guest has memory, and the kernel runs nothing of it',
  async () => {
    const table = join(bench.dir, 'ssdt.aml')
    await writeFile(table, hostileTable())
    const said = join(bench.dir, 'said')
    const hostile = [
      ...['-acpitable', `file=${table}`],
      ...['-chardev', `file,id=debug,path=${said}`, '-device', `isa-debugcon,iobase=${debugPort},chardev=debug`],
    ]
    const serial = await boot(hostile, wholeBoot)
    expectMemory(serial, 'there is none')
    expect(serial).toContain('no AML: true')
    expect(await Bun.file(said).text()).toBe('')
    // The same kernel runs it without our command line.
    const cmdline = (await Bun.file(join(image, 'cmdline')).text()).replace(/initcall_blacklist=\S+ pci=noacpi /, '')
    await using _ = await bootGuest(image, root, { devices: hostile, cmdline })
    await until('the table has run', bootTimeoutMs, async () => (await Bun.file(said).text()).startsWith(amlRan))
  },
  timeoutMs,
)

test(
  'goal: a disk that fails costs the disk, not the boot',
  async () => {
    const failing = await sparse(join(bench.dir, 'failing.img'), 1024 * mib)
    const faults = 'inject-error.0.event=none,inject-error.0.iotype=write,inject-error.0.errno=5'
    const broken = [
      ...['-blockdev', `driver=file,node-name=scratch-file,filename=${failing}`],
      ...['-blockdev', `driver=blkdebug,node-name=scratch,image=scratch-file,${faults}`],
      ...['-device', 'virtio-blk-pci,drive=scratch,serial=scratch,werror=report'],
    ]
    expectMemory(await boot(broken, wholeBoot), 'no file system could be made on it')
  },
  timeoutMs,
)

// Goal: each kind of useless disk has its reason. The rest of the boot is the same for all, and seen above.
test.each([
  { what: 'tiny', reason: 'it is too small' },
  { what: 'read-only', reason: 'it is read-only' },
] as const)(
  'a $what disk is of no use, and init says why',
  async ({ what, reason }) => {
    const tiny = await sparse(join(bench.dir, 'tiny.img'), 64 * mib)
    await boot(what === 'tiny' ? disk(tiny) : disk(preparedDisk, ',read-only=on'), [
      `strongroom: no scratch disk, ${reason}: memory instead`,
    ])
  },
  timeoutMs,
)

test(
  'goal: one flipped bit of the root stops the boot before the agent',
  async () => {
    const changed = join(bench.dir, 'changed.img')
    await run(['cp', '--reflink=auto', '--sparse=always', root, changed], {})
    await flipByte(changed, '# PID 1 of the guest.')
    await expect(verify(changed)).rejects.toThrow()
    await using guest = await bootGuest(image, changed)
    expect({ ended: await guest.ends(bootTimeoutMs), serial: guest.serial() }).toMatchObject({ ended: true })
    expect(guest.serial()).toContain('Kernel panic - not syncing: dm-verity device corrupted')
    expect(guest.serial()).not.toContain(agentStarted)
  },
  timeoutMs,
)

function expectMemory(serial: string, reason: string): void {
  expect(serial).toContain(`strongroom: no scratch disk, ${reason}: memory instead`)
  expect(serial).toMatch(/mounted overlay \/ overlay /)
  expect(serial).not.toContain(' ext4 ')
}

async function sparse(path: string, sizeBytes: number): Promise<string> {
  await writeFile(path, '')
  await run(['truncate', `--size=${sizeBytes}`, path], {})
  return path
}

/** A sound file system with a setuid program on it. */
async function prepared(dir: string): Promise<string> {
  const tree = join(dir, 'tree')
  await mkdir(join(tree, 'upper', 'usr', 'bin'), { recursive: true })
  await writeFile(join(tree, 'upper', 'usr', 'bin', 'planted'), planted)
  await run(['chmod', '4755', join(tree, 'upper', 'usr', 'bin', 'planted')], {})
  const path = await sparse(join(dir, 'prepared.img'), 1024 * mib)
  await run(['mke2fs', '-q', '-F', '-t', 'ext4', '-d', tree, path], {})
  return path
}

async function superblock(path: string): Promise<string> {
  const [offset, length] = [1024, 1024]
  const file = await open(path, 'r')
  try {
    const { buffer } = await file.read(Buffer.alloc(length), 0, length, offset)
    return buffer.toString('hex')
  } finally {
    await file.close()
  }
}

/** Whether a whole file holds a text; read by grep, as it is large. */
async function holds(path: string, text: string): Promise<boolean> {
  return (await Bun.spawn(['grep', '-qF', text, path]).exited) === 0
}

/** Changes one bit of a file that surely is read: the first program run from the root. */
async function flipByte(path: string, marker: string): Promise<void> {
  const file = await open(path, 'r+')
  try {
    const chunkBytes = 1 << 24
    const buffer = Buffer.alloc(chunkBytes)
    for (let at = 0; ; at += chunkBytes - marker.length) {
      const { bytesRead } = await file.read(buffer, 0, chunkBytes, at)
      const found = buffer.subarray(0, bytesRead).indexOf(marker)
      if (found !== -1) {
        await file.write(Buffer.from([(buffer[found] ?? 0) ^ 1]), 0, 1, at + found)
        return
      }
      if (bytesRead < chunkBytes) throw new Error(`${marker} is not in ${path}`)
    }
  } finally {
    await file.close()
  }
}
