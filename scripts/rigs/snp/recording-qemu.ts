// QEMU with the recorder of its SNP launch (recorder.c), and a /dev with /dev/sev. Effects: compiles, copies, mounts.
//
// The copy names the recorder as its first library, so the appliance's own code lists it for the jail and starts it
// with the argv, descriptors and limits of production. Only one value differs: QEMU compares the position of the
// encryption bit with CPUID, which is `recordedCbitPosition` on a host without SEV.

import { chmodSync, copyFileSync, existsSync, mkdirSync } from 'node:fs'
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

/** Builds the recording QEMU in an empty directory and returns its path. */
export async function buildRecordingQemu(directory: string, qemu: string = hostQemu): Promise<string> {
  const library = join(directory, 'recorder.so')
  const source = join(import.meta.dir, 'recorder.c')
  await run(['gcc', '-shared', '-fPIC', '-Wall', '-Wextra', '-Werror', '-O2', '-o', library, source], {})
  const bin = join(directory, 'bin')
  mkdirSync(bin, { mode: 0o755 })
  const copy = join(bin, 'qemu-system-x86_64')
  copyFileSync(qemu, copy)
  await run(['patchelf', '--add-needed', library, copy], {})
  for (const path of [directory, copy, library]) chmodSync(path, 0o755)
  await mountPrlimit(directory)
  return copy
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
