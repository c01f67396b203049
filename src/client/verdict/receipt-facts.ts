// Facts that every receipt proves, in plain words: image, operator, who can read the VM, hardware and firmware. Pure.

import { type Product, productOfCpuid } from '../../attest/amd/product.ts'
import { decodeTcb } from '../../attest/amd/tcb.ts'
import { isZero } from '../../attest/encoding/layout.ts'
import { floorsCompiledOn } from '../../attest/policy/floors.ts'
import { hasBit, POLICY_BITS } from '../../attest/report/bits.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import type { Check } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import { pinCheckName } from '../../verifier/pins.ts'
import { hostName } from './host-text.ts'
import type { Fact } from './plain.ts'
import { isImageOnlyLogged } from './summary.ts'

export type ReceiptFacts = {
  readonly report: SnpReport | null
  /** Null if no statement names an image, as in results of other builders. */
  readonly image: string | null
  readonly operatorKey: Uint8Array | null
  readonly simulated: boolean
  /** Whether the image is from this project, so that its disk is encrypted. */
  readonly isOwnImage: boolean
  /** Checks of the verdict and of the receipt. */
  readonly checks: readonly Check[]
  /** Files and options that name the expected measurement; empty if none does. */
  readonly sources: readonly string[]
}

/** Number of hexadecimal digits that are shown of a digest which a policy compares completely. */
const shownHexChars = 12

export function shortHex(bytes: Uint8Array): string {
  return shortText(toHex(bytes))
}

export function shortText(hex: string): string {
  return `${hex.slice(0, shownHexChars)}…`
}

/** Returns the image that runs, and the operator who started it. */
export function launchFacts({ report, image, operatorKey, checks, sources }: ReceiptFacts): Fact[] {
  const measurement = report === null ? [] : [`measurement ${shortHex(report.measurement)}`]
  const what = [...(image === null ? [] : [`image ${hostName(image)}`]), ...measurement].join(', ')
  return [
    ['runs', `${what}${expectedWords(checks, sources)}`],
    ...loggedFacts(checks),
    ['started by', operatorWords(operatorKey ?? report?.idKeyDigest ?? null, report, checks)],
  ]
}

function expectedWords(checks: readonly Check[], sources: readonly string[]): string {
  const pin = checks.find(({ name }) => name === pinCheckName('measurement'))
  if (pin?.outcome !== 'pass') return '; no expected one was named'
  return sources.length === 0 ? `, ${pin.reason}` : `, as named by ${sources.join(' and ')}`
}

/** Returns whether the transparency log contains it, if one was queried. */
function loggedFacts(checks: readonly Check[]): Fact[] {
  const found = ['log-included', 'log-witnessed', 'log-age'].flatMap(name => {
    const logged = checks.find(check => check.name === name && check.outcome === 'pass' && check.reason !== '')
    return logged === undefined ? [] : [logged.reason]
  })
  return found.length === 0 ? [] : [['runs', `in the transparency log: ${found.join('; ')}`]]
}

function operatorWords(key: Uint8Array | null, report: SnpReport | null, checks: readonly Check[]): string {
  if (key === null || isZero(key)) return 'an unknown operator: no operator key signed the launch'
  const short = shortHex(key)
  if (isPassed(checks, 'id-key-digest')) return `the operator whose key you pinned, ${short}`
  const author = report?.authorKeyDigest ?? null
  if (author !== null && !isZero(author) && isPassed(checks, 'author-key-digest'))
    return `the operator whose author key you pinned, ${shortHex(author)}; it signed the key of this launch, ${short}`
  return `an operator whose key you did not pin, ${short}`
}

function isPassed(checks: readonly Check[], name: string): boolean {
  return checks.some(check => check.name === name && check.outcome === 'pass')
}

/** Names the readers of memory and disk. `also`: other readers, by the settings. */
export function readerFacts(facts: ReceiptFacts, also: readonly string[] = []): Fact[] {
  return [...memoryLines(facts), ...also].map(text => ['read by', text] as const)
}

function memoryLines({ report, simulated, isOwnImage, checks }: ReceiptFacts): string[] {
  if (simulated) return ['its host and the operator, all of it: a SIMULATED VM has no encrypted memory']
  if (report === null) return ['unknown: there is no report']
  const isOn = (bit: number) => hasBit(report.policy, bit)
  const opened = [
    ...(isOn(POLICY_BITS.debug) ? ['the debugger is ON: its host can read its memory'] : []),
    ...(isOn(POLICY_BITS.migrate) ? ['migration is ON: a migration agent of its operator can read its memory'] : []),
  ]
  if (opened.length > 0) return opened
  return [imageWords(isOwnImage, checks), 'debugger and migration, by which a host could read the memory, are off']
}

/** Only for an expected image it is known whether it keeps memory and disk to itself. */
function imageWords(isOwnImage: boolean, checks: readonly Check[]): string {
  if (isImageOnlyLogged(checks)) return loggedWords
  if (!isPassed(checks, pinCheckName('measurement'))) return unknownWords
  return `only what runs inside: ${isOwnImage ? encryptedWords : memoryWords}`
}

const memoryWords = 'the processor encrypts the memory, and neither its host nor the operator can read it'
const encryptedWords =
  'the processor encrypts the memory, the disk has a key that exists only there, and neither its host nor the operator can read them'
const unknownWords = 'unknown: the image decides that, and you named no expected one'
const loggedWords =
  'unknown: the image decides that, and its entry in the transparency log shows only that others can see it too'

const PRODUCT_NAMES = { milan: 'Milan', genoa: 'Genoa', turin: 'Turin' } as const satisfies Record<Product, string>

export function hardwareFacts({ report, simulated, checks }: ReceiptFacts): Fact[] {
  if (report === null) return []
  const product = report.cpuid === null ? null : productOfCpuid(report.cpuid)
  const name = product === null ? 'AMD EPYC with SEV-SNP' : `AMD EPYC ${PRODUCT_NAMES[product]} with SEV-SNP`
  const tcb = product === null ? null : resultOr(() => decodeTcb(report.rawTcb.reported, product), null)
  const firmware = tcb === null ? [] : [`firmware ${tcb.snp}, microcode ${tcb.microcode}${floorWords(checks)}`]
  const chips = checks.filter(({ name, outcome }) => name === 'chip-list' && outcome === 'pass')
  const gpus = checks.filter(check => gpuChecks.includes(check.name) && check.outcome === 'pass' && check.reason !== '')
  return [
    ['hardware', simulated ? `none: SIMULATED, in the form of ${name}` : name],
    ...firmware.map(text => ['hardware', text] as const),
    ...chips.map(({ reason }) => ['hardware', `chip compared with ${reason}`] as const),
    ...gpus.map(({ reason }) => ['hardware', `GPUs: ${reason}`] as const),
  ]
}

const gpuChecks: readonly string[] = ['gpu-required', 'gpu-evidence']

/** Describes the comparison with the minimum versions that this program has from AMD's bulletins. */
function floorWords(checks: readonly Check[]): string {
  const floors = checks.filter(({ name }) => /^tcb-floor-(?:launch-)?(?:snp|microcode)$/.test(name))
  if (floors.length === 0) return ", not compared with AMD's security fixes"
  if (floors.some(({ outcome }) => outcome !== 'pass')) return ", not shown to have all of AMD's security fixes"
  return `: no older than AMD's security fixes known on ${floorsCompiledOn}`
}
