// strongroom measure: the launch digest that hardware will report. Needs no daemon and no root. Effects: reads files.

import { Option } from 'commander'
import {
  type LaunchDigest,
  type LaunchVehicle,
  launchDigest,
  precomputedLaunchDigest,
} from '../../attest/launch/digest.ts'
import { launchDigestBytes } from '../../attest/launch/page-info.ts'
import { present } from '../../base/assert.ts'
import { fromHex } from '../../base/bytes.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readInput, readingInput, readJsonInput } from '../../terminal/input-file.ts'
import { hexOption, required } from '../../terminal/options.ts'
import { cpusOf, launchOf, parseLaunchInputs } from './launch-inputs.ts'
import {
  addBootOptions,
  addCpuOptions,
  type BootOptions,
  type CpuOptions,
  firmwareBytesMax,
  readBootFiles,
  requiredCpus,
} from './launch-options.ts'
import { addMeasureIgvm } from './measure-igvm.ts'
import { nativeSha384 } from './native.ts'
import { showDigest } from './show-digest.ts'

const inputsBytesMax = MIB
const VEHICLES = ['bios', 'igvm'] as const satisfies readonly LaunchVehicle[]

export function addMeasure(program: Command): void {
  const measure = program
    .command('measure')
    .description('predict launch digests: ovmf, igvm; offline, needs no daemon')
    .examples('strongroom measure igvm image.igvm --profile qemu-kvm')
  addOvmf(measure)
  addMeasureIgvm(measure)
}

type OvmfOptions = BootOptions &
  CpuOptions & { firmware?: string; inputs?: string; vehicle: LaunchVehicle; expect?: Uint8Array }

function addOvmf(measure: Command): void {
  const ovmf = measure
    .command('ovmf')
    .description('print the launch digest of a VM that QEMU and KVM start from OVMF firmware (profile qemu-kvm)')
    .option('--firmware <file>', 'OVMF with SEV metadata')
  addCpuOptions(addBootOptions(ovmf))
    .option('--inputs <file>', 'JSON with precomputed inputs, instead of --firmware, --kernel, --initrd and --cmdline')
    .addOption(new Option('--vehicle <kind>', 'how QEMU gets the firmware').choices(VEHICLES).default('bios'))
    .option('--expect <hex>', 'compare; exit code 1 when the digest differs', hexOption(launchDigestBytes))
    .examples(
      'strongroom measure ovmf --firmware OVMF.fd --vcpus 2 --vcpu-type EPYC-v4 --features 0x1',
      "strongroom measure ovmf --firmware OVMF.fd --kernel vmlinuz --initrd initrd --cmdline 'console=ttyS0' \\\n" +
        '    --vcpus 2 --vcpu-type EPYC-v4 --features 0x1 --json',
      'strongroom measure ovmf --inputs inputs.json',
    )
    .runs(async (run, options: OvmfOptions) => {
      const measured = await (options.inputs === undefined ? measureFiles(options) : measureInputs(options))
      await showDigest(run, measured.digest, measured.expected)
    })
}

type Measured = { digest: LaunchDigest; expected: Uint8Array | undefined }

async function measureFiles(options: OvmfOptions): Promise<Measured> {
  const firmware = required('firmware', options.firmware)
  const cpus = requiredCpus(options)
  const boot = readBootFiles(options)
  const bytes = readInput({ path: firmware, param: 'firmware', bytesMax: firmwareBytesMax })
  const launch = { ...cpus, ...boot, firmware: bytes, vehicle: options.vehicle, sha384: nativeSha384 }
  const digest = await readingInput('', () => launchDigest({ ...launch, profile: 'qemu-kvm' }))
  return { digest, expected: options.expect }
}

/** Measures a document. Options of the command line override it. */
async function measureInputs(options: OvmfOptions): Promise<Measured> {
  const path = required('inputs', options.inputs)
  for (const param of ['firmware', 'kernel', 'initrd', 'cmdline'] as const) {
    if (options[param] === undefined) continue
    const remedy = `leave out --${param} or --inputs`
    throw new InputFault(`--${param} and --inputs exclude each other`, { param, remedy })
  }
  const document = readJsonInput({ path, param: 'inputs', bytesMax: inputsBytesMax })
  return await readingInput(`--inputs ${path}`, async () => {
    const inputs = parseLaunchInputs(document)
    const { vcpus, vcpuType, features } = options
    const own = Object.fromEntries(
      Object.entries({ vcpus, vcpuType, features }).filter(([, value]) => value !== undefined),
    )
    const cpus = requiredCpus({ ...cpusOf(inputs), ...own })
    const launch = { ...launchOf(inputs), ...cpus, vehicle: options.vehicle, sha384: nativeSha384 }
    const stated = inputs.expected_launch_digest
    const expected = stated === undefined ? undefined : present(fromHex(stated), 'the schema requires hexadecimal')
    const digest = await precomputedLaunchDigest({ ...launch, profile: 'qemu-kvm' })
    return { digest, expected: options.expect ?? expected }
  })
}
