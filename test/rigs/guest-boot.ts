// Boots an image in QEMU's software emulation and gives its serial console. Effects; kills what it started.

import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'

export type GuestBoot = AsyncDisposable & {
  /** Serial output so far. */
  readonly serial: () => string
  /** True when the console shows `text` in time; false when QEMU ended or time ran out. */
  readonly shows: (text: string, timeoutMs: number) => Promise<boolean>
  /** True when QEMU ends by itself in time. */
  readonly ends: (timeoutMs: number) => Promise<boolean>
  readonly pressPowerButton: () => Promise<void>
}

const serialCharsMax = 1_000_000
const pollMs = 100

/** Starts the kernel of `imageDir` over `root`. */
export async function bootGuest(imageDir: string, root: string): Promise<GuestBoot> {
  const socketDir = await mkdtemp('/tmp/guest-image-boot-')
  const monitor = join(socketDir, 'monitor')
  const child = Bun.spawn(
    [
      'qemu-system-x86_64',
      ...['-nodefaults', '-no-user-config', '-nographic', '-no-reboot'],
      ...[
        '-machine',
        'q35,vmport=off,hpet=off',
        '-accel',
        'tcg,thread=multi',
        '-cpu',
        'max',
        '-smp',
        '2',
        '-m',
        '1024',
      ],
      ...['-kernel', join(imageDir, 'kernel'), '-initrd', join(imageDir, 'initrd')],
      ...['-append', await Bun.file(join(imageDir, 'cmdline')).text()],
      ...['-drive', `if=none,id=root,format=raw,readonly=on,file=${root}`],
      ...['-device', 'virtio-blk-pci,drive=root,disable-legacy=on'],
      ...['-serial', 'stdio', '-qmp', `unix:${monitor},server=on,wait=off`],
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
    async pressPowerButton() {
      const socket = await Bun.connect({ unix: monitor, socket: { data() {} } })
      socket.write('{"execute":"qmp_capabilities"}\n{"execute":"system_powerdown"}\n')
      socket.flush()
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await child.exited
      await reading
      await rm(socketDir, { recursive: true, force: true })
    },
  }
}
