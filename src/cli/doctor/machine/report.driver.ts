// Collects the facts for `strongroom doctor --report`. Effects: reads files and CPUID, runs commands that change
// nothing, one ioctl that changes nothing.

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { release } from 'node:os'
import { messageOf } from '../../../base/fault.ts'
import { resultOr } from '../../../base/result-or.ts'
import { version } from '../../../base/version.ts'
import { readCpuid } from '../../../host/platform.ts'
import { snpStatus } from '../../../host/sev.ts'
import { run } from '../../../linux/command.ts'
import { bootParameters, type MachineReport, parameterText, sevLines } from './report.ts'

/** Vendor and signature; features; memory encryption; the RMP and its segments (AMD 24594, appendix E). */
const CPUID_LEAVES = [
  ...[0x0, 0x1, 0x8000_0000, 0x8000_0001, 0x8000_0002, 0x8000_0003, 0x8000_0004, 0x8000_0008],
  ...[0x8000_001e, 0x8000_001f, 0x8000_0021, 0x8000_0025, 0x8000_0026],
]
const BOARD = ['sys_vendor', 'product_name', 'board_vendor', 'board_name', 'bios_vendor', 'bios_version', 'bios_date']
const PACKAGES = [
  ...['qemu-system-x86', 'ovmf', 'ovmf-amdsev', 'seabios', 'swtpm', 'amd64-microcode'],
  ...['linux-image-amd64', 'strongroom', 'strongroom-images'],
]
/** Placeholders of dpkg-query(1). */
const packageFormat = `--showformat=\${Package} \${Version}\\n`
const commandTimeoutMs = 10_000
const outputBytesMax = 4 * 1024 * 1024

/** Never throws. */
export async function collectMachineReport(): Promise<MachineReport> {
  const cpuinfo = readText('/proc/cpuinfo') ?? ''
  const ofCpu = (name: string) => new RegExp(`^${name}\\s*:\\s*(.*)$`, 'm').exec(cpuinfo)?.[1] ?? null
  const log = await output(['journalctl', '--dmesg', '--boot', '--no-pager', '--output=cat'])
  // Lists all packages, because a name that is not installed would make the command fail.
  const packages = await output(['dpkg-query', '--show', packageFormat])
  return {
    version,
    kernel: release(),
    distribution: /^PRETTY_NAME="(.*)"$/m.exec(readText('/etc/os-release') ?? '')?.[1] ?? null,
    bootParameters: bootParameters(readText('/proc/cmdline') ?? ''),
    board: Object.fromEntries(BOARD.map(name => [name, readText(`/sys/class/dmi/id/${name}`)?.trim() ?? null])),
    processor: Object.fromEntries(
      ['vendor_id', 'cpu family', 'model', 'model name', 'stepping', 'microcode'].map(name => [name, ofCpu(name)]),
    ),
    cpuid: Object.fromEntries(CPUID_LEAVES.map(leaf => [leaf.toString(16).padStart(8, '0'), cpuidText(leaf)])),
    moduleParameters: { ...parametersOf('kvm_amd'), ...parametersOf('ccp') },
    devices: Object.fromEntries(['/dev/sev', '/dev/kvm', '/dev/cpu/0/cpuid'].map(path => [path, deviceText(path)])),
    firmware: resultOr<unknown, null>(snpStatus, null) ?? resultText(snpStatus),
    packages: packages.split('\n').filter(line => PACKAGES.includes(line.split(' ')[0] ?? '')),
    kernelLog: sevLines(log === '' ? await output(['dmesg']) : log),
  }
}

function cpuidText(leaf: number): string {
  return resultText(() =>
    (readCpuid('/', leaf).toHex().match(/.{8}/g) ?? [])
      .map(word => Uint8Array.fromHex(word).reverse().toHex())
      .join(' '),
  )
}

function deviceText(path: string): string {
  return resultText(() => {
    const { mode, uid, gid } = statSync(path)
    return `mode ${(mode & 0o7777).toString(8)}, uid ${uid}, gid ${gid}`
  })
}

function parametersOf(module: string): Record<string, string | null> {
  const directory = `/sys/module/${module}/parameters`
  const names = resultOr(() => readdirSync(directory).sort(), [])
  return Object.fromEntries(
    names.map(name => [`${module}.${name}`, parameterText(readText(`${directory}/${name}`)?.trim() ?? null)]),
  )
}

/** Returns the text, or the message of its failure. */
function resultText(work: () => unknown): string {
  try {
    return String(work())
  } catch (error) {
    return messageOf(error)
  }
}

function readText(path: string): string | null {
  return resultOr(() => readFileSync(path, 'utf8'), null)
}

/** Returns '' for a command that is missing or fails without output. */
async function output(argv: readonly string[]): Promise<string> {
  return await run(argv, { timeoutMs: commandTimeoutMs, outputBytesMax }).then(
    ({ stdout }) => stdout,
    () => '',
  )
}
