// The same Cargo build without our layers: kernel and root of the builder image under QEMU's TCG, started as an
// appliance starts them, but with an init of its own. No dm-verity, no encrypted disk, no overlay, no agent, no
// sandbox: Cargo runs as root in a tmpfs. Effects: a QEMU, files in the caller's directory.

import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { assert } from '../../../src/base/assert.ts'
import { cargoBuildArgv, cargoEnvironment } from '../../../src/builder/cargo/cargo.plan.ts'
import { places } from '../../../src/builder/phase.ts'
import type { CpioEntry } from '../../image/tree/cpio.ts'
import type { SourceFiles } from '../../rigs/build/sources.ts'
import { initrdWith, programEntry } from '../boot/plain-boot.ts'

export type PlainVm = {
  /** Directory of the builder image. */
  readonly image: string
  readonly vcpus: number
  readonly memoryMib: number
  /** For the initrd. */
  readonly directory: string
}

const timeoutMs = 300_000
/** Busybox, the kernel's modules and their order are the image's own, as its init has them. */
const init = `#!/bin/busybox sh
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
mount -t sysfs sysfs /sys
while read -r module; do insmod "/modules/$module"; done </modules/order
until [ -b /dev/vda ]; do usleep 10000; done
mount -t erofs -o ro /dev/vda /verified
mount -t tmpfs -o size=75% tmpfs /root
cd /root
mkdir -p usr etc proc dev tmp build/source build/target build/home build/cargo
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
mount -o bind /verified/usr usr
mount -o bind /verified/etc etc
mount -o bind /proc proc
mount -o bind /dev dev
cp -r /project/. build/source
cp /plain-build tmp/plain-build
read -r before rest </proc/uptime
chroot /root /bin/sh /tmp/plain-build >tmp/log 2>&1
code=$?
read -r after rest </proc/uptime
[ $code = 0 ] || tail -n 20 tmp/log
echo "plain-build: $code $before $after"
reboot -f
`

/** Milliseconds from before Cargo's start to its end, by the guest's clock. */
export async function plainBuildMs(project: SourceFiles, vm: PlainVm): Promise<number> {
  const initrd = join(vm.directory, 'plain-initrd')
  writeFileSync(initrd, initrdWith(vm.image, entriesOf(project)))
  const child = Bun.spawn(qemuArgv(vm, initrd), {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'inherit',
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  })
  const output = await child.stdout.text()
  const [, code, before, after] = /plain-build: (\d+) ([\d.]+) ([\d.]+)/.exec(output) ?? []
  assert(code === '0', `the plain build failed: ${output.slice(-2000)}`)
  return Math.round((Number(after) - Number(before)) * 1000)
}

/** Machine, processor and accelerator as in src/vm/launch/qemu.plan.ts; the kernel's settings are the image's. */
function qemuArgv({ image, vcpus, memoryMib }: PlainVm, initrd: string): string[] {
  const words = readFileSync(join(image, 'cmdline'), 'utf8').trim().split(' ')
  const kept = words.filter(word => !/^(?:strongroom\.|rdinit=)/.test(word))
  return [
    // Ends with this process, however that ends.
    ...['setpriv', '--pdeathsig', 'KILL', '--'],
    ...['qemu-system-x86_64', '-nodefaults', '-no-user-config', '-nographic', '-no-reboot'],
    ...['-machine', 'q35,vmport=off,hpet=off,acpi=off', '-accel', 'tcg,thread=single,tb-size=512'],
    ...['-cpu', 'max,la57=off,erms=off,fsrm=off'],
    ...['-smp', `${vcpus}`, '-m', `${memoryMib}M`, '-serial', 'stdio'],
    ...['-blockdev', `driver=file,node-name=root-file,filename=${join(image, 'root.img')},read-only=on`],
    ...['-blockdev', 'driver=raw,node-name=root,file=root-file,read-only=on'],
    ...['-device', 'virtio-blk-pci,drive=root,serial=root'],
    ...['-kernel', join(image, 'kernel'), '-initrd', initrd, '-append', [...kept, 'rdinit=/plain-init'].join(' ')],
  ]
}

function entriesOf(project: SourceFiles): CpioEntry[] {
  const directories = new Set(['project'])
  for (const path of Object.keys(project)) {
    const parents: string[] = []
    for (let at = dirname(path); at !== '.'; at = dirname(at)) parents.unshift(join('project', at))
    for (const parent of parents) directories.add(parent)
  }
  const file = (path: string, text: string): CpioEntry => {
    return { kind: 'file', path, bytes: Buffer.from(text), executable: false }
  }
  return [
    programEntry('plain-init', init),
    file('plain-build', buildScript()),
    ...[...directories].map((path): CpioEntry => ({ kind: 'directory', path })),
    ...Object.entries(project).map(([path, text]) => file(join('project', path), text)),
  ]
}

/** The command line and the environment of a build in a build VM. */
function buildScript(): string {
  const environment = Object.entries(cargoEnvironment('/usr/bin')).map(([name, value]) => `${name}=${value}`)
  const words = ['env', '-i', ...environment, ...cargoBuildArgv({ mirror: null, lock: [], options: null })]
  return `cd ${places.source} || exit 1\nexec ${words.map(quoted).join(' ')}\n`
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`
}
