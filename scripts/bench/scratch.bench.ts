// The scratch disk beside one that is encrypted only: the initrd's own function makes the first, a table of aes-xts
// the second, in turns in one boot. Real QEMU under TCG, whose AES and carry-less products are emulated: ratios of
// hardware differ.

import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { assert, present } from '../../src/base/assert.ts'
import { downloadPath } from '../image/downloads.ts'
import { openCacheDirs } from '../image/image-cache.ts'
import { moduleClosure, unpackKernel } from '../image/kernel.ts'
import { packageOf, readPackagesLock } from '../image/packages-lock.ts'
import { recipePaths } from '../image/recipe.ts'
import type { CpioEntry } from '../image/tree/cpio.ts'
import { builtImage } from '../rigs/appliance.ts'
import { bootGuest } from '../rigs/guest/boot.ts'
import type { Figures } from './bench-report.ts'
import { initrdWith } from './boot/plain-boot.ts'
import { round } from './in-netns.ts'
import type { BenchContext } from './main.ts'

const rounds = 5
const sizeMib = 64
const randomCount = 1_000
const timeoutMs = 420_000
const kinds = ['plain', 'scratch'] as const
const works = ['write', 'read', 'randomRead', 'randomWrite'] as const

/** Figures in one line: MiB/s of a file written and synced, and read; blocks a second past the page cache. */
const program = `
import os, time, mmap, random
path, mib, count = '/mnt/f', ${sizeMib}, ${randomCount}
blob = os.urandom(1 << 20)
page = mmap.mmap(-1, 4096)
page.write(blob[:4096])
random.seed(1)
blocks = [random.randrange(mib * 256) for _ in range(count)]
def took(work):
    begin = time.monotonic()
    work()
    return time.monotonic() - begin
def write():
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(mib): os.write(fd, blob)
    os.fsync(fd)
    os.close(fd)
def read():
    fd = os.open(path, os.O_RDONLY)
    while os.read(fd, 1 << 20): pass
    os.close(fd)
def random_read():
    for block in blocks: os.preadv(direct, [page], block * 4096)
def random_write():
    for block in blocks: os.pwritev(direct, [page], block * 4096)
    os.fsync(direct)
seconds = [took(write)]
open('/proc/sys/vm/drop_caches', 'w').write('3')
seconds.append(took(read))
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
seconds += [took(random_read), took(random_write)]
print(*[round(amount / one, 1) for amount, one in zip([mib, mib, count, count], seconds)])
`

export async function run({ repoRoot, note }: BenchContext): Promise<Figures> {
  const image = await builtImage('instance')
  const directory = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  try {
    const disk = join(directory, 'scratch.img')
    writeFileSync(disk, '')
    truncateSync(disk, 4 * 2 ** 30)
    const initrd = join(directory, 'initrd')
    writeFileSync(initrd, initrdWith(image, await entries(repoRoot, directory)))
    const cmdline = readFileSync(join(image, 'cmdline'), 'utf8').replace('lockdown=confidentiality ', '')
    await using guest = await bootGuest(image, join(image, 'root.img'), { cmdline, initrd, devices: deviceOf(disk) })
    assert(await guest.shows('bench: over', timeoutMs), `the boot failed: ${guest.serial().slice(-2000)}`)
    for (const line of guest.serial().split('\n')) if (line.startsWith('bench: ')) note(line.trim())
    return figuresOf(guest.serial())
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** As the daemon gives it, without limits. */
function deviceOf(path: string): string[] {
  const caching = 'cache.direct=off,cache.no-flush=on,discard=unmap'
  return [
    ...['-blockdev', `driver=file,node-name=scratch-file,filename=${path},aio=threads,${caching}`],
    ...['-blockdev', `driver=raw,node-name=scratch,file=scratch-file,${caching}`],
    ...['-device', 'virtio-blk-pci,drive=scratch,serial=scratch,discard=on'],
  ]
}

/** The second part of init, with this benchmark after the disk; and modules that the image no longer has. */
async function entries(repoRoot: string, workDir: string): Promise<readonly CpioEntry[]> {
  const machine = readFileSync(join(repoRoot, 'guest-image/common/initrd/machine'), 'utf8')
  const [functions = ''] = machine.split('\nstart_ahead() {')
  const { downloads } = await openCacheDirs(null)
  const lock = await readPackagesLock(recipePaths(repoRoot, 'instance').packagesLock)
  const kernel = await unpackKernel(downloadPath(downloads, packageOf(lock, 'kernel').sha256), join(workDir, 'kernel'))
  const modules = await moduleClosure(kernel, ['aesni-intel', 'xts'])
  const text = (path: string, bytes: Uint8Array | string): CpioEntry => ({
    kind: 'file',
    path,
    bytes: typeof bytes === 'string' ? Buffer.from(bytes) : bytes,
    executable: false,
  })
  return [
    ...modules.map(({ path, bytes }) => text(`modules/${basename(path)}`, bytes)),
    text('bench.py', program),
    text('continue', `${functions}\n${driver(modules.map(({ path }) => basename(path)))}`),
  ]
}

function driver(modules: readonly string[]): string {
  return `
set +eu
exec >/dev/console 2>&1
for module in ${modules.join(' ')}; do insmod /modules/$module 2>/dev/null; done
mount -t tmpfs tmpfs /verified/srv && cp /bench.py /verified/srv/
mount -t proc proc /verified/proc
measure() {
  mount --move /scratch /verified/mnt
  echo "bench: $1 $(chroot /verified /usr/bin/python3 /srv/bench.py)"
  umount /verified/mnt
  dmsetup remove scratch --noudevsync --noudevrules
  dmsetup remove tags --noudevsync --noudevrules 2>/dev/null
}
plain() {
  key=$(hexdump -v -n 64 -e '1/1 "%02x"' /dev/random)
  dmsetup create scratch --noudevsync --noudevrules --table \\
    "0 $(cat /sys/block/vdb/size) crypt aes-xts-plain64 $key 0 /dev/vdb 0 2 allow_discards sector_size:4096"
  mount -t devtmpfs devtmpfs /verified/dev
  chroot /verified /sbin/mke2fs -q -F -t ext4 -b 4096 -m 0 -O ^has_journal,^resize_inode -E nodiscard /dev/dm-1
  umount /verified/dev
  mount -t ext4 -o noatime,noinit_itable /dev/dm-1 /scratch
}
for round in ${Array.from({ length: rounds }, (_, at) => at + 1).join(' ')}; do
  map_scratch || echo "bench: no disk: $reason"
  measure scratch
  plain
  measure plain
  # Its memory goes with it: the next one begins with zeros.
  rmmod brd
done
echo 'bench: over'
reboot -f
`
}

/** The best of each kind's rounds: what disturbs a run makes it slower. */
function figuresOf(serial: string): Figures {
  const best = (kind: string, at: number) => {
    const lines = [...serial.matchAll(new RegExp(`^bench: ${kind} ([\\d. ]+)\\r?$`, 'gm'))]
    assert(lines.length === rounds, `${kind}: ${lines.length} of ${rounds} rounds: ${serial.slice(-2000)}`)
    return Math.max(...lines.map(line => Number(present(line[1], 'figures').split(' ')[at])))
  }
  const figures: Record<string, Figures[string]> = {}
  for (const [at, work] of works.entries()) {
    const [plain, scratch] = kinds.map(kind => best(kind, at)) as [number, number]
    const unit = at < 2 ? 'MiB/s' : 'blocks/s'
    figures[`${work}Plain`] = { value: plain, unit, aim: null }
    figures[work] = { value: scratch, unit, aim: null, baseline: `${work}Plain` }
    figures[`${work}Ratio`] = { value: round(scratch / plain), unit: 'x plain dm-crypt', aim: { atLeast: 0.7 } }
  }
  return figures
}
