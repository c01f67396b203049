// Boots an image in QEMU's software emulation and gives its serial console. Effects; kills what it started.

import { join } from 'node:path'

type GuestBoot = AsyncDisposable & {
  /** Serial output so far. */
  readonly serial: () => string
  /** True when the console shows `text` in time; false when QEMU ended or time ran out. */
  readonly shows: (text: string, timeoutMs: number) => Promise<boolean>
  /** True when QEMU ends by itself in time. */
  readonly ends: (timeoutMs: number) => Promise<boolean>
}

const serialCharsMax = 1_000_000
const pollMs = 100

/** Changes to the machine, or parts of it to leave out. */
type BootOptions = {
  /** Further arguments of QEMU, after all others. */
  readonly devices?: readonly string[]
  /** The kernel's command line in the place of the image's. */
  readonly cmdline?: string
  /** A file in the place of the image's initrd. */
  readonly initrd?: string
}

/** Starts the kernel of `imageDir` over `root`. */
export async function bootGuest(
  imageDir: string,
  root: string,
  { devices = [], cmdline, initrd = join(imageDir, 'initrd') }: BootOptions = {},
): Promise<GuestBoot> {
  const child = Bun.spawn(
    [
      // Ends with this process, however that ends.
      ...['setpriv', '--pdeathsig', 'KILL', '--', 'qemu-system-x86_64'],
      ...['-nodefaults', '-no-user-config', '-nographic', '-no-reboot'],
      ...['-machine', 'q35,vmport=off,hpet=off', '-accel', 'tcg,thread=single', '-cpu', 'max'],
      ...['-smp', '2', '-m', '1024'],
      ...['-kernel', join(imageDir, 'kernel'), '-initrd', initrd],
      ...['-append', cmdline ?? (await Bun.file(join(imageDir, 'cmdline')).text())],
      ...['-drive', `if=none,id=root,format=raw,readonly=on,file=${root}`],
      ...['-device', 'virtio-blk-pci,drive=root,disable-legacy=on'],
      ...devices,
      ...['-serial', 'stdio'],
    ],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' },
  )
  let text = ''
  const reading = (async () => {
    const decoder = new TextDecoder()
    for await (const chunk of child.stdout) text = (text + decoder.decode(chunk)).slice(-serialCharsMax)
  })()
  return {
    serial: () => text,
    async shows(wanted, timeoutMs) {
      const deadlineMs = performance.now() + timeoutMs
      while (!text.includes(wanted) && child.exitCode === null && performance.now() < deadlineMs)
        await Bun.sleep(pollMs)
      return text.includes(wanted)
    },
    ends: timeoutMs => Promise.race([child.exited.then(() => true), Bun.sleep(timeoutMs).then(() => false)]),
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await child.exited
      await reading
    },
  }
}
