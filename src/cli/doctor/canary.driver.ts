// Boots a canary: a VM of 64 KiB of firmware that writes one byte and ends. It shows whether guests run here, by the
// appliance's own program, user, jail and accelerator. Effects: one process for some seconds, one directory, removed
// afterwards.

import { chmodSync, closeSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../../base/fault.ts'
import type { Platform } from '../../config/schema.ts'
import { plainEnv } from '../../linux/command.ts'
import { beginningOf } from '../../linux/command-lines.ts'
import { pidfdOpen, pidfdSendSignal } from '../../linux/libc/pidfd.ts'
import { type Confinement, confinedArgv, devicesOf } from '../../vm/launch/confinement.plan.ts'
import { jailArgv } from '../../vm/launch/jail.plan.ts'
import type { JailFiles } from '../../vm/launch/jail-files.driver.ts'
import type { CanaryFacts } from './canary.plan.ts'

export type CanaryOptions = {
  readonly qemu: string
  readonly platform: Platform
  readonly vm: Confinement
  readonly jailFiles: Pick<JailFiles, 'ofQemu'>
  readonly timeoutMs: number
}

const killTimeoutMs = 10_000
const stderrCharsMax = 400

/** Never throws. Needs root, as the start of a VM does. */
export async function bootCanary({ qemu, platform, vm, jailFiles, timeoutMs }: CanaryOptions): Promise<CanaryFacts> {
  const startedMs = performance.now()
  const tookMs = () => Math.round(performance.now() - startedMs)
  let directory: string | null = null
  try {
    directory = mkdtempSync(join(tmpdir(), 'strongroom-canary-'))
    // The VM's user reads one file of it.
    chmodSync(directory, 0o711)
    const rom = join(directory, 'canary.rom')
    writeFileSync(rom, canaryRom(), { mode: 0o644 })
    chmodSync(rom, 0o644)
    const { program, files } = await jailFiles.ofQemu(qemu)
    const jail = { files: [...files, rom], devices: devicesOf(vm), diesWithParent: true }
    const child = Bun.spawn(confinedArgv(vm, jailArgv(jail, canaryArgv({ qemu: program, platform, rom }))), {
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
      env: plainEnv,
      cwd: '/',
    })
    const stderr = beginningOf(child.stderr, stderrCharsMax)
    const ended = await Promise.race([child.exited, Bun.sleep(timeoutMs).then(() => null)])
    if (ended === null) return { kind: 'silent', tookMs: tookMs(), isGone: await end(child) }
    if (ended === canaryExitCode) return { kind: 'ran', tookMs: tookMs() }
    const said = (await stderr).trim().replaceAll('\n', ' ')
    return { kind: 'failed', text: said === '' ? `QEMU ended with ${child.signalCode ?? `exit code ${ended}`}` : said }
  } catch (error) {
    return { kind: 'failed', text: messageOf(error) }
  } finally {
    if (directory !== null) rmSync(directory, { recursive: true, force: true })
  }
}

/** Uses its pidfd (pidfd_send_signal(2)), because its number may be reused. Returns false if it does not die. */
async function end(child: { readonly pid: number; readonly exited: Promise<number> }): Promise<boolean> {
  const opened = pidfdOpen(child.pid)
  if (opened.ok) {
    pidfdSendSignal(opened.value, constants.signals.SIGKILL)
    closeSync(opened.value)
  }
  return await Promise.race([child.exited.then(() => true), Bun.sleep(killTimeoutMs).then(() => false)])
}

const canaryByte = 0x2a
/** The device `isa-debug-exit` ends QEMU with twice the byte and one. */
const canaryExitCode = 2 * canaryByte + 1
const debugExitPort = 0xf4
const romBytes = 65_536
/** The first instruction of an x86 processor, 16 bytes below the end of its firmware (Intel SDM volume 3, 10.1.4). */
const resetOffsetBytes = romBytes - 16

/** mov al, 2Ah; out F4h, al; hlt; and back to hlt. */
function canaryRom(): Uint8Array {
  const rom = new Uint8Array(romBytes).fill(0xf4)
  rom.set([0xb0, canaryByte, 0xe6, debugExitPort, 0xf4, 0xeb, 0xfd], resetOffsetBytes)
  return rom
}

function canaryArgv({ qemu, platform, rom }: Pick<CanaryOptions, 'qemu' | 'platform'> & { rom: string }): string[] {
  const cpu = platform === 'tcg' ? ['-accel', 'tcg', '-cpu', 'max'] : ['-accel', 'kvm', '-cpu', 'host']
  return [
    qemu,
    ...['-nodefaults', '-no-user-config', '-nographic', '-nic', 'none'],
    ...['-name', 'strongroom-canary'],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...['-machine', 'q35', ...cpu, '-m', '32M', '-smp', '1'],
    ...['-bios', rom, '-device', `isa-debug-exit,iobase=0x${debugExitPort.toString(16)},iosize=0x1`],
  ]
}
