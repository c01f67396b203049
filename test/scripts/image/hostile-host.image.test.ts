// Goal: what a hostile host gives a guest besides what is measured is of no use to it: the scratch disk, and ACPI
// tables.

import { expect, test } from 'bun:test'
import { mkdir, open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { agentStarted, buildTestImage, imageBench, run } from '../../../scripts/rigs/build/image-build.ts'
import { bootGuest } from '../../../scripts/rigs/guest/boot.ts'
import { amlRan, debugPort, hostileTable } from '../../rigs/hostile/acpi.ts'

const bootTimeoutMs = 150_000
const mib = 1_048_576
const marker = 'what only the guest may know'
const planted = 'what the host has planted'
/** The guest says what it sees of its root, and leaves something there that the host can look for. */
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
`

/** Arguments of QEMU for a scratch disk. */
const disk = (path: string, more = '') => [
  ...['-blockdev', `driver=file,node-name=scratch-file,filename=${path}${more}`],
  ...['-blockdev', `driver=raw,node-name=scratch,file=scratch-file${more}`],
  ...['-device', 'virtio-blk-pci,drive=scratch,serial=scratch,discard=on'],
]

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

async function bytesAt(path: string, offset: number, length: number): Promise<string> {
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

test('a host gains nothing by the disk or by the ACPI tables that it gives, and a useless disk costs the disk, not the boot', async () => {
  // Goal: one image, many hosts: prepared, missing, tiny, read-only and failing disks, and a table with code in it.
  await using bench = await imageBench(program)
  const image = await buildTestImage({
    recipe: 'instance',
    cacheDir: join(bench.dir, 'cache'),
    executable: bench.executable,
    shared: ['downloads', 'bases'],
    umask: '022',
    env: {},
  })
  const root = join(image, 'root.img')
  const boot = async (devices: readonly string[]) => {
    await using guest = await bootGuest(image, root, { devices })
    expect({ started: await guest.shows(agentStarted, bootTimeoutMs), serial: guest.serial() }).toMatchObject({
      started: true,
    })
    // The console shows a line letter by letter.
    expect(await guest.shows('all is said', bootTimeoutMs)).toBe(true)
    return guest.serial()
  }

  // A disk that the host has prepared: nothing of it is seen, and what the guest writes cannot be read.
  const path = await prepared(bench.dir)
  expect(await holds(path, planted)).toBe(true)
  const superblock = { offset: 1024, length: 1024 }
  const before = await bytesAt(path, superblock.offset, superblock.length)
  const ciphertexts: string[] = []
  for (let i = 0; i < 2; i += 1) {
    const serial = await boot(disk(path, ',discard=unmap'))
    expect(serial).toContain('strongroom: scratch disk: 1024 MiB, encrypted and authenticated')
    expect(serial).toMatch(/mounted overlay \/ overlay \S*nodev/)
    expect(serial).toMatch(/mounted \S+ \/var\/lib\/strongroom\/scratch ext4 rw,nosuid,nodev/)
    // A tmpfs would have half of the 1 GiB memory.
    expect(Number(/home of (\d+) MiB/.exec(serial)?.[1])).toBeGreaterThan(900)
    expect(serial).toContain('setuid: []')
    expect(serial).toContain('key: 32 digits, told elsewhere: false')
    expect(await holds(path, marker)).toBe(false)
    ciphertexts.push(await bytesAt(path, superblock.offset, superblock.length))
  }
  expect(new Set([before, ...ciphertexts]).size).toBe(3)

  // No disk, or none that is of use.
  const tiny = await sparse(join(bench.dir, 'tiny.img'), 64 * mib)
  const failing = await sparse(join(bench.dir, 'failing.img'), 1024 * mib)
  const broken = [
    ...['-blockdev', `driver=file,node-name=scratch-file,filename=${failing}`],
    ...[
      '-blockdev',
      'driver=blkdebug,node-name=scratch,image=scratch-file,inject-error.0.event=none,inject-error.0.iotype=write,inject-error.0.errno=5',
    ],
    ...['-device', 'virtio-blk-pci,drive=scratch,serial=scratch,werror=report'],
  ]
  for (const [devices, reason] of [
    [[], 'there is none'],
    [disk(tiny), 'it is too small'],
    [disk(path, ',read-only=on'), 'it is read-only'],
    [broken, 'no file system could be made on it'],
  ] as const) {
    const serial = await boot(devices)
    expect(serial).toContain(`strongroom: no scratch disk, ${reason}: memory instead`)
    expect(serial).toMatch(/mounted overlay \/ overlay /)
    expect(serial).not.toContain(' ext4 ')
  }

  // Code in a table: the same kernel runs it without our command line, and does not with it.
  const table = join(bench.dir, 'ssdt.aml')
  await writeFile(table, hostileTable())
  const said = join(bench.dir, 'said')
  const hostile = [
    ...['-acpitable', `file=${table}`],
    ...['-chardev', `file,id=debug,path=${said}`, '-device', `isa-debugcon,iobase=${debugPort},chardev=debug`],
  ]
  const serial = await boot(hostile)
  expect(serial).toContain('no AML: true')
  expect(await Bun.file(said).text()).toBe('')
  const cmdline = (await Bun.file(join(image, 'cmdline')).text()).replace(/initcall_blacklist=\S+ pci=noacpi /, '')
  await using open_ = await bootGuest(image, root, { devices: hostile, cmdline })
  expect(await open_.shows('no AML: false', bootTimeoutMs)).toBe(true)
  expect(await Bun.file(said).text()).toStartWith(amlRan)
}, 900_000)
