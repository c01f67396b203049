// strongroom igvm: builds and shows IGVM files, without a daemon, configuration or root. Effects: the named files.

import { Option } from 'commander'
import { buildIgvm, type IgvmBuild } from '../../attest/igvm/build.ts'
import { describeIgvm, type IgvmExpectation } from '../../attest/igvm/describe.ts'
import { igvmBytesMax } from '../../attest/igvm/file.ts'
import { measureIgvm } from '../../attest/igvm/measure.ts'
import { guestPolicy as policyDefault } from '../../attest/launch/guest.ts'
import { idAuthBytes, idBlockBytes, readIdAuth, readIdBlock } from '../../attest/launch/id-block.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { readInput, readingInput, readOptionalInput } from '../../terminal/input-file.ts'
import { required, unsignedOption } from '../../terminal/options.ts'
import { writeOutput } from '../../terminal/output-file.ts'
import { hexNumber } from '../../terminal/render.ts'
import { igvmDocument, igvmText, shownFile } from './igvm-render.ts'
import {
  addBootOptions,
  addCpuOptions,
  type BootOptions,
  type CpuOptions,
  firmwareBytesMax,
  initrdBytesMax,
  kernelBytesMax,
  readKernelHashes,
  requiredCpus,
} from './launch-options.ts'
import { nativeSha384 } from './native.ts'
import { showCompared } from './show-digest.ts'

export function addIgvm(program: Command): void {
  const igvm = program
    .command('igvm')
    .description('IGVM files: build, show; offline, needs no daemon')
    .examples('strongroom igvm show image.igvm')
  addBuild(igvm)
  addShow(igvm)
}

type BuildOptions = BootOptions &
  CpuOptions & { firmware: string; policy: bigint; idBlock?: string; idAuth?: string; out: string }

function addBuild(igvm: Command): void {
  const build = igvm
    .command('build')
    .description('write firmware, kernel hashes and processors to one file, and print its launch digest')
    .requiredOption('--firmware <file>', 'OVMF with SEV metadata')
  addCpuOptions(addBootOptions(build))
    .addOption(
      new Option('--policy <bits>', 'guest policy; the default allows SMT, no debug and no migration')
        .argParser(unsignedOption(64))
        .default(policyDefault, hexNumber(policyDefault)),
    )
    .option('--id-block <file>', `ID block of this digest and policy, ${idBlockBytes} bytes; with --id-auth`)
    .option('--id-auth <file>', `ID authentication, ${idAuthBytes} bytes`)
    .requiredOption('--out <file>', 'file to write; an existing file is replaced')
    .examples(
      "strongroom igvm build --firmware OVMF.fd --kernel vmlinuz --initrd initrd --cmdline 'console=ttyS0' \\\n" +
        '    --vcpus 2 --vcpu-type EPYC-v4 --features 0x1 --out image.igvm',
    )
    .runs(buildFile)
}

async function buildFile(run: Run, options: BuildOptions): Promise<void> {
  const cpus = requiredCpus(options)
  const kernelHashes = await readKernelHashes(options)
  const firmware = readInput({ path: options.firmware, param: 'firmware', bytesMax: firmwareBytesMax })
  const idBlock = await readIdBlockFiles(options)
  const { policy } = options
  const build: IgvmBuild = {
    ...cpus,
    ...(idBlock === undefined ? {} : { idBlock }),
    firmware,
    kernelHashes,
    policy,
    sha384: nativeSha384,
  }
  const bytes = await readingInput('', () => buildIgvm(build))
  const { digest, profile } = await measureIgvm(bytes, { profile: 'qemu-kvm', sha384: nativeSha384 })
  writeOutput(options.out, bytes)
  await showCompared(run, shownFile({ file: options.out, bytes, digest, profile }, run.paint), null)
}

async function readIdBlockFiles({ idBlock, idAuth }: BuildOptions): Promise<IgvmBuild['idBlock']> {
  if (idBlock === undefined && idAuth === undefined) return undefined
  const block = readInput({ path: required('id-block', idBlock), param: 'id-block', bytesMax: idBlockBytes })
  const auth = readInput({ path: required('id-auth', idAuth), param: 'id-auth', bytesMax: idAuthBytes })
  return await readingInput('', () => ({ block: readIdBlock(block), auth: readIdAuth(auth) }))
}

function addShow(igvm: Command): void {
  const show = igvm
    .command('show')
    .description(
      'print the content and the launch digests of a file; --kernel, --initrd and --cmdline are compared with it',
    )
    .argument('<file>', 'IGVM file')
  addBootOptions(show)
    .examples(
      'strongroom igvm show image.igvm',
      "strongroom igvm show image.igvm --kernel vmlinuz --initrd initrd --cmdline 'console=ttyS0'",
    )
    .runs(async (run, file: string, options: BootOptions) => {
      const bytes = readInput({ path: file, param: 'file', bytesMax: igvmBytesMax })
      const expected = expectationOf(options)
      const described = await readingInput(file, () => describeIgvm(bytes, { expected, sha384: nativeSha384 }))
      const shown = { document: igvmDocument(described), text: igvmText(described, run.paint) }
      await showCompared(run, shown, expected === 'any' ? null : described.checks)
    })
}

/** Returns the files to compare with. Each of the three may be given alone. */
function expectationOf({ kernel, initrd, cmdline }: BootOptions): IgvmExpectation | 'any' {
  if (kernel === undefined && initrd === undefined && cmdline === undefined) return 'any'
  return {
    kernel: readOptionalInput({ path: kernel, param: 'kernel', bytesMax: kernelBytesMax }) ?? 'any',
    initrd: readOptionalInput({ path: initrd, param: 'initrd', bytesMax: initrdBytesMax }) ?? 'any',
    cmdline: cmdline ?? { any: true },
  }
}
