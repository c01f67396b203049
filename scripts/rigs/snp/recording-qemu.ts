// QEMU with the recorder of its SNP launch (recorder.c), and a /dev with /dev/sev. Effects: compiles, copies, mounts.
//
// The copy names the recorder as its first library, so the appliance's own code lists it for the jail and starts it
// with the argv, descriptors and limits of production. Only one value differs: QEMU compares the position of the
// encryption bit with CPUID, which is `recordedCbitPosition` on a host without SEV.

import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { run } from '../build/image-build.ts'

export const hostQemu = '/usr/bin/qemu-system-x86_64'
export const recordedCbitPosition = 0

/** Returns why nothing can be recorded on this machine; null if it can. Opens no device. */
export function cannotRecord(): string | null {
  if (process.getuid?.() !== 0) return 'recording an SNP launch needs root'
  if (!existsSync('/dev/kvm')) return 'recording an SNP launch needs /dev/kvm'
  const missing = ['gcc', 'patchelf', 'bwrap', hostQemu].find(program => Bun.which(program) === null)
  return missing === undefined ? null : `recording an SNP launch needs ${missing}`
}

/**
 * Builds the recording QEMU in an empty directory and returns its path. `tree`: files of another QEMU and its libraries
 * (debian-qemus.ts), instead of this host's. Its data goes over this host's; mount namespace as below.
 */
export async function buildRecordingQemu(directory: string, tree: string | null = null): Promise<string> {
  const library = join(directory, 'recorder.so')
  const source = join(import.meta.dir, 'recorder.c')
  await run(['gcc', '-shared', '-fPIC', '-Wall', '-Wextra', '-Werror', '-O2', '-o', library, source], {})
  const bin = join(directory, 'bin')
  mkdirSync(bin, { mode: 0o755 })
  const copy = join(bin, 'qemu-system-x86_64')
  copyFileSync(join(tree ?? '/', hostQemu), copy)
  await run(['patchelf', '--add-needed', library, copy], {})
  if (tree !== null) await useTree(copy, tree)
  for (const path of [directory, copy, library]) chmodSync(path, 0o755)
  await mountPrlimit(directory)
  return copy
}

/** Directories in which QEMU looks for firmware and option ROMs. */
const dataDirs = ['/usr/share/qemu', '/usr/share/seabios', '/usr/lib/ipxe/qemu']

/** Makes QEMU load the libraries of the tree, its C library and loader among them, and find the tree's data. */
async function useTree(qemu: string, tree: string): Promise<void> {
  const libraries = join(tree, 'usr', 'lib', 'x86_64-linux-gnu')
  const loader = ['--set-interpreter', join(libraries, 'ld-linux-x86-64.so.2')]
  await run(['patchelf', ...loader, '--force-rpath', '--set-rpath', libraries, qemu], {})
  for (const path of dataDirs) {
    if (existsSync(path) && existsSync(join(tree, path))) await run(['mount', '--bind', join(tree, path), path], {})
  }
}

/** Returns what the QEMU of a tree loads, which is not where this host's loader looks. */
export function filesOfTree(qemu: string, tree: string): string[] {
  const libraries = join(tree, 'usr', 'lib', 'x86_64-linux-gnu')
  return [qemu, join(qemu, '..', '..', 'recorder.so'), libraries, ...dataDirs.filter(path => existsSync(path))]
}

/** Ends the mounts of `buildRecordingQemu` and `mountSevDevice`. */
export function unmountAll(device: string): void {
  const mounted = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map(line => line.split(' ')[4] ?? '')
  const paths = ['/dev', device, '/usr/bin/prlimit', ...dataDirs].filter(path => mounted.includes(path))
  // Lazily, because this process may have files of /dev open.
  for (const path of paths) Bun.spawnSync(['umount', '--lazy', path])
}

/**
 * Puts a prlimit(1) with the recorder over this host's. It only records the bound of pinned memory if the host refuses
 * it, because a root without CAP_SYS_RESOURCE, as in a container, cannot raise it. Mount namespace as below.
 */
async function mountPrlimit(directory: string): Promise<void> {
  const copy = join(directory, 'bin', 'prlimit')
  copyFileSync('/usr/bin/prlimit', copy)
  await run(['patchelf', '--add-needed', join(directory, 'recorder.so'), copy], {})
  chmodSync(copy, 0o755)
  await run(['mount', '--bind', copy, '/usr/bin/prlimit'], {})
}

/** The group of both devices, as Debian's rules for udev give it to /dev/kvm. */
const deviceGroup = '104'

/**
 * Puts a /dev with /dev/sev over this process's own. Call it in a mount namespace of your own (scripts/rigs/netns.ts).
 * The node is a copy of /dev/null, so it can be opened; the recorder answers its requests.
 */
export async function mountSevDevice(directory: string): Promise<void> {
  await run(['mount', '-t', 'tmpfs', 'recorded-dev', directory], {})
  const [upper, work] = ['upper', 'work'].map(name => join(directory, name))
  for (const path of [upper, work]) mkdirSync(path as string, { mode: 0o755 })
  await run(['mount', '-t', 'overlay', 'overlay', '-o', `lowerdir=/dev,upperdir=${upper},workdir=${work}`, '/dev'], {})
  await run(['mknod', '/dev/sev', 'c', '1', '3'], {})
  for (const path of ['/dev/sev', '/dev/kvm']) {
    await run(['chown', `0:${deviceGroup}`, path], {})
    chmodSync(path, 0o660)
  }
}
