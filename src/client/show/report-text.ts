// Formats every field of an SNP report for people. Pure. Verifies nothing.

import { cpuidText, type Product } from '../../attest/amd/product.ts'
import { tcbComponentsOf } from '../../attest/amd/tcb.ts'
import { isZero } from '../../attest/encoding/layout.ts'
import type { FoundReport } from '../../attest/report/form.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import { toHex } from '../../base/bytes.ts'
import { dash, fields, oneLine, type Paint, table } from '../../terminal/render.ts'
import type { KdsUrls } from '../kds/kds-urls.ts'
import { reportDocument } from '../verdict/report-document.ts'

export type ShownReport = {
  readonly form: FoundReport['form']
  /** Container of the report, in words; null if there is none. */
  readonly container: string | null
  readonly report: SnpReport
  /** Null if unknown. */
  readonly product: Product | null
  /** Addresses of the report's collateral, or why there are none: its product or TCB is unknown. */
  readonly kds: KdsUrls | { readonly reason: string }
}

export function shownReportText({ form, container, report, product, kds }: ShownReport, paint: Paint): string {
  const document = reportDocument(report, product)
  const warning =
    'NOT VERIFIED: these are the bytes as they came; anybody could have written them (`strongroom verify report`)'
  const before: Row[] = [
    ['form', `${FORMS[form]}${container === null ? '' : ` out of ${container}`}`],
    ['product', productText(report, product)],
  ]
  const rows = [...before, ...identityRows(report), ...launchRows(report, document), ...platformRows(report, document)]
  return [
    `${paint.bad(warning)}\n\n`,
    fields(paint, rows),
    `\n${tcbTable(document, product, paint)}`,
    `\n${fields(paint, kdsRows(kds))}`,
  ].join('')
}

const FORMS = {
  plain: 'an SNP report',
  'azure-hcl': 'an SNP report inside an Azure HCL report',
} as const satisfies Record<FoundReport['form'], string>

type Row = readonly [name: string, value: string]
type Document = ReturnType<typeof reportDocument>

function productText({ cpuid }: SnpReport, product: Product | null): string {
  if (cpuid !== null) return `${product ?? 'not known'}, by CPUID ${cpuidText(cpuid)}`
  const source = 'a version 2 report carries no CPUID'
  return product === null ? `not known: ${source}; name the product by --product` : `${product}, as named: ${source}`
}

function identityRows(report: SnpReport): Row[] {
  const agent = report.reportIdMa.every(byte => byte === 0xff) ? ' (no migration agent)' : ''
  return [
    ['version', String(report.version)],
    ['VMPL', report.vmpl === hostVmpl ? `${report.vmpl} (asked for by the host)` : String(report.vmpl)],
    ['measurement', toHex(report.measurement)],
    ['report data', halves(report.reportData)],
    ['host data', toHex(report.hostData)],
    ['report id', toHex(report.reportId)],
    ['report id of agent', `${toHex(report.reportIdMa)}${agent}`],
  ]
}

/** VMPL of a report requested by the host. */
const hostVmpl = 0xffff_ffff

function launchRows(report: SnpReport, { policy }: Document): Row[] {
  return [
    ['guest policy', `${bitsText(policy)}; ABI ${policy.abi}`],
    ['guest SVN', String(report.guestSvn)],
    ['family id', toHex(report.familyId)],
    ['image id', toHex(report.imageId)],
    ['ID key digest', orZeros(report.idKeyDigest, 'no ID block')],
    ['author key digest', orZeros(report.authorKeyDigest, 'no author key')],
  ]
}

function platformRows(report: SnpReport, document: Document): Row[] {
  const { mitigation, firmware, reserved, signature } = document
  const algorithm = report.signatureAlgo === ecdsaP384 ? 'ECDSA P-384 with SHA-384' : 'not known'
  return [
    ['platform info', bitsText(document.platform_info)],
    ['firmware', `current ${firmware.current}, committed ${firmware.committed}`],
    [
      'mitigation vectors',
      mitigation === null
        ? `- (version ${report.version})`
        : `launch ${mitigation.launch}, current ${mitigation.current}`,
    ],
    ['chip id', isZero(report.chipId) ? `${zeros} (masked)` : halves(report.chipId)],
    ['signer', report.signer],
    ['key info', bitsText(document.key_info)],
    [
      'signature',
      `algorithm ${report.signatureAlgo} (${algorithm}), little-endian\nR ${signature.r}\nS ${signature.s}`,
    ],
    ['reserved bytes', reserved.length === 0 ? zeros : reserved.map(reservedText).join('\n')],
  ]
}

const ecdsaP384 = 1
const zeros = 'all zeros'

function reservedText({ offset, bytes }: Document['reserved'][number]): string {
  return `at 0x${offset.toString(16)}: ${bytes}`
}

type ShownBits = { readonly value: string; readonly set: readonly string[]; readonly unknown: readonly number[] }

/** Formats `0x3: smt, tsme`, with the numbers of bits without a name. */
function bitsText({ value, set, unknown }: ShownBits): string {
  const names = [...set, ...unknown.map(bit => `bit ${bit}`)]
  return `${value}: ${names.length === 0 ? 'no bit is set' : names.join(', ')}`
}

/** Formats 64 bytes on two lines. */
function halves(bytes: Uint8Array): string {
  return `${toHex(bytes.subarray(0, 32))}\n${toHex(bytes.subarray(32))}`
}

function orZeros(bytes: Uint8Array, meaning: string): string {
  return isZero(bytes) ? `${zeros} (${meaning})` : toHex(bytes)
}

/** Formats components in the product's layout. A TCB of another layout has none. */
function tcbTable({ tcb }: Document, product: Product | null, paint: Paint): string {
  const components = product === null ? [] : tcbComponentsOf(product)
  const rows = Object.entries(tcb).map(([name, found]) => {
    const cells = components.map(component => dash(Reflect.get(found, component)))
    return [name, found.value, ...cells]
  })
  return table(paint, ['TCB', 'value', ...components], rows)
}

function kdsRows(kds: ShownReport['kds']): Row[] {
  const reason: Row[] = kds.reason === null ? [] : [['no VCEK', oneLine(kds.reason)]]
  if (!('chain' in kds)) return reason
  return [...(kds.vcek === null ? reason : [['VCEK', kds.vcek] as const]), ['chain', kds.chain], ['CRL', kds.crl]]
}
