// Options that describe a launch, shared by the commands that measure and build. Effects: reads the named files.

import { InvalidArgumentError } from 'commander'
import { vcpuCountMax } from '../../attest/launch/digest.ts'
import { type BootFiles, kernelHashesOf } from '../../attest/launch/kernel-hashes.ts'
import { isVcpuType, VCPU_SIGNATURES } from '../../attest/launch/vcpu-types.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readInput, readingInput, readOptionalInput } from '../../terminal/input-file.ts'
import { countOption, required, unsignedOption } from '../../terminal/options.ts'
import { nativeSha256 } from './native.ts'

export const firmwareBytesMax = 64 * MIB
export const kernelBytesMax = 256 * MIB
export const initrdBytesMax = 1024 * MIB

export type BootOptions = { kernel?: string; initrd?: string; cmdline?: string }
export type CpuOptions = { vcpus?: number; vcpuType?: string | number; features?: bigint }
/** The processor options of a launch, all of them required. */
export type Cpus = Required<CpuOptions>

export function addBootOptions(command: Command): Command {
  return command
    .option('--kernel <file>', 'kernel that the firmware boots')
    .option('--initrd <file>', 'initrd that the firmware boots')
    .option('--cmdline <text>', 'kernel command line, without a newline at its end')
}

export function addCpuOptions(command: Command): Command {
  return command
    .option('--vcpus <count>', 'virtual CPUs', countOption(1, vcpuCountMax))
    .option('--vcpu-type <model>', 'QEMU CPU model like EPYC-v4, or a CPUID signature like 0x800f12', vcpuTypeOption)
    .option('--features <bits>', 'SEV_FEATURES, like 0x1', unsignedOption(64))
}

export function requiredCpus({ vcpus, vcpuType, features }: CpuOptions): Cpus {
  return {
    vcpus: required('vcpus', vcpus),
    vcpuType: required('vcpu-type', vcpuType),
    features: required('features', features),
  }
}

/** Reads the files; null if no kernel is given. */
export function readBootFiles({ kernel, initrd, cmdline }: BootOptions): BootFiles | null {
  if (kernel === undefined) {
    const param = initrd !== undefined ? 'initrd' : cmdline !== undefined ? 'cmdline' : null
    if (param === null) return null
    const message = `--${param} needs --kernel: without a kernel, the firmware checks neither initrd nor command line`
    throw new InputFault(message, { param, remedy: `add --kernel, or leave out --${param}` })
  }
  return {
    kernel: readInput({ path: kernel, param: 'kernel', bytesMax: kernelBytesMax }),
    initrd: readOptionalInput({ path: initrd, param: 'initrd', bytesMax: initrdBytesMax }),
    cmdline,
  }
}

/** Returns SHA-256 of each file, as in the firmware's table; null if no kernel is given. */
export async function readKernelHashes(options: BootOptions) {
  const files = readBootFiles(options)
  return files === null ? null : await readingInput('', () => kernelHashesOf(files, nativeSha256))
}

export function vcpuTypeOption(text: string): string | number {
  if (isVcpuType(text)) return text
  const signature = /^0x[0-9a-fA-F]{1,8}$/.test(text) ? Number(text) : 0
  if (signature > 0) return signature
  const models = Object.keys(VCPU_SIGNATURES).join(', ')
  throw new InvalidArgumentError(`It must be a CPUID signature like 0x800f12 or one of ${models}.`)
}
