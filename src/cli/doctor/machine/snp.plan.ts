// Judges the facts about SEV-SNP. Pure.

import type { Cpuid, Product } from '../../../attest/amd/product.ts'
import { decodeTcb, type Tcb, tcbText } from '../../../attest/amd/tcb.ts'
import { type Floor, floorsAbove, microcodeFloors, SNP_FLOORS } from '../../../attest/policy/floors.ts'
import { messageOf } from '../../../base/fault.ts'
import type { Config, Platform } from '../../../config/schema.ts'
import type { SnpFacts } from '../../../host/platform.ts'
import type { AsidUse, SnpStatus } from '../../../host/sev.ts'
import { type Check, fail, fromOutcome, type Outcome, pass, skip, warn } from '../check.ts'

type ReadValue<Value> = { readonly ok: true; readonly value: Value } | { readonly ok: false; readonly text: string }

export type SnpHostFacts = {
  /** uname(2), release. */
  readonly kernel: string
  /** CPUID; root only. */
  readonly cpu: ReadValue<SnpFacts>
  /** The firmware's status; root only. */
  readonly status: ReadValue<SnpStatus>
  readonly product: Product | null
  readonly cpuid: Cpuid | null
  /** Null if the kernel does not count them. */
  readonly asids: AsidUse | null
  /** Whether the firmware that snp boots through exists and fits. */
  readonly firmware: Outcome
}

/** KVM launches SNP guests from this one on; some distributions have it earlier. */
const kernelMinimum = [6, 11] as const
/** The firmware version that KVM requires (arch/x86/kvm/svm/sev.c, SNP_MIN_API_MAJOR and SNP_MIN_API_MINOR). */
const apiMinimum = [1, 51] as const

export function snpChecks(facts: SnpHostFacts, config: Pick<Config, 'vm' | 'capacity'>, platform: Platform): Check[] {
  if (platform !== 'snp') {
    return [
      pass('kernel', facts.kernel),
      ...['sev firmware', 'asids', 'tcb'].map(name => skip(name, 'not an SNP host')),
    ]
  }
  return [kernelCheck(facts), statusCheck(facts), asidCheck(facts, config), tcbCheck(facts)]
}

/** Firmware that snp boots through, from which an IGVM file is made as well: the configured file, or the image's. */
export function firmwareFile(vm: Config['vm']): string {
  return (vm.snp_boot === 'igvm' ? vm.igvm : vm.firmware) || `${vm.image_dir}/firmware.fd`
}

export function firmwareCheck({ firmware }: SnpHostFacts, platform: Platform): Check {
  if (platform !== 'snp') return skip('firmware', 'only snp boots through firmware')
  const remedy =
    'set vm.firmware = "" and vm.igvm = "" for those of the image, and build or copy the image again; or install ovmf-amdsev'
  return fromOutcome('firmware', firmware, remedy)
}

function kernelCheck({ kernel }: SnpHostFacts): Check {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(kernel) ?? []
  if (major === undefined) return skip('kernel', `no version in ${kernel}`)
  if (isAtLeast([Number(major), Number(minor)], kernelMinimum)) return pass('kernel', kernel)
  const detail = `${kernel}: KVM launches SNP guests from ${kernelMinimum.join('.')} on, unless the distribution has added it`
  return warn('kernel', detail, 'install a kernel of 6.11 or later')
}

const INIT_REMEDY =
  'update the SEV firmware (package amd64-microcode, or the BIOS) and reboot; journalctl --dmesg --grep="SEV|ccp" shows what the kernel found'

function statusCheck({ status }: SnpHostFacts): Check {
  const name = 'sev firmware'
  if (!status.ok) return fail(name, status.text, 'run as root; load the ccp module: modprobe ccp')
  const { apiMajor, apiMinor, build, isInitialized, isRmpInitialized, isChipMasked } = status.value
  const version = `API ${apiMajor}.${apiMinor}, build ${build}`
  if (!isAtLeast([apiMajor, apiMinor], apiMinimum))
    return fail(name, `${version}; KVM needs ${apiMinimum.join('.')}`, INIT_REMEDY)
  if (!isInitialized || !isRmpInitialized)
    return fail(name, `${version}, but ${isInitialized ? 'its RMP is' : 'SNP is'} not initialized`, INIT_REMEDY)
  if (!isChipMasked) return pass(name, `${version}, initialized`)
  const detail = `${version}: CHIP_ID is masked, so that no VEK of this chip can be found and no report verifies`
  return fail(name, detail, 'run snphost config reset, and drop what sets MaskChipId at boot')
}

function asidCheck({ cpu, asids, status }: SnpHostFacts, { capacity }: Pick<Config, 'capacity'>): Check {
  const name = 'asids'
  if (!cpu.ok) return skip(name, cpu.text)
  const { asidCount } = cpu.value
  const used = asids?.used ?? (status.ok ? status.value.guestCount : null)
  const detail = `${used === null ? 'an unknown number' : used} of ${asidCount} taken`
  if (asidCount === 0)
    return fail(
      name,
      'the BIOS gives none to SEV-ES and SEV-SNP',
      'raise "SEV-ES ASID Space Limit" in the BIOS setup, above 1',
    )
  if (capacity.asids > asidCount)
    return fail(
      name,
      `capacity.asids is ${capacity.asids}, and the CPU has ${asidCount}`,
      `set capacity.asids to ${asidCount} or less, or to 0`,
    )
  if (used !== null && used >= asidCount)
    return warn(
      name,
      `${detail}: no further VM can start`,
      'raise "SEV-ES ASID Space Limit" in the BIOS setup, or end VMs of others',
    )
  return pass(name, detail)
}

function tcbCheck({ status, product, cpuid }: SnpHostFacts): Check {
  const name = 'tcb'
  if (!status.ok) return skip(name, 'the firmware does not answer')
  if (product === null) return skip(name, 'the processor is none that is known here')
  let tcb: Tcb
  try {
    tcb = decodeTcb(status.value.reportedTcb, product)
  } catch (error) {
    return fail(name, messageOf(error), INIT_REMEDY)
  }
  const floors: [component: 'snp' | 'microcode', floors: readonly Floor[]][] = [
    ['snp', SNP_FLOORS[product]],
    ['microcode', microcodeFloors(product, cpuid)],
  ]
  const below = floors.flatMap(([component, numbers]) =>
    floorsAbove(tcb[component], numbers)
      .slice(0, 1)
      .map(({ least, bulletin, hand }) => ({
        hand,
        text: `${component} ${tcb[component]} is below ${least} (${bulletin}${hand === 'first' ? '' : ', by second hand'})`,
      })),
  )
  const reported = `reported ${tcbText(tcb)}`
  if (below.length === 0) return pass(name, `${reported}: not below the floors of relying parties`)
  const detail = `${reported}: ${below.map(({ text }) => text).join('; ')}`
  return below.some(({ hand }) => hand === 'first') ? fail(name, detail, TCB_REMEDY) : warn(name, detail, TCB_REMEDY)
}

const TCB_REMEDY =
  'update the BIOS, and with it microcode and SEV firmware, reboot, then commit it: snphost commit; relying parties refuse what is below'

function isAtLeast(
  [major, minor]: readonly [number, number],
  [leastMajor, leastMinor]: readonly [number, number],
): boolean {
  return major > leastMajor || (major === leastMajor && minor >= leastMinor)
}
