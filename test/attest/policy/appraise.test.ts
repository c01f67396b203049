import { describe, expect, test } from 'bun:test'
import { PRODUCTS, type Product } from '../../../src/attest/amd/product.ts'
import { decodeTcb, tcbComponentsOf } from '../../../src/attest/amd/tcb.ts'
import { encodeTcb } from '../../../src/attest/amd/tcb-encode.ts'
import { appraise } from '../../../src/attest/policy/appraise.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { PLATFORM_BITS, POLICY_BITS } from '../../../src/attest/report/bits.ts'
import { type IdentifiedReport, identifyReport } from '../../../src/attest/report/identify.ts'
import { decodeReport, encodeReport, type SnpReport } from '../../../src/attest/report/report.ts'
import { type Outcome, verdict } from '../../../src/attest/verdict.ts'
import { verifyReportSignature } from '../../../src/attest/verify/report-signature.ts'
import { laxPolicy as lax } from '../../rigs/attest/exact-policy.ts'
import { expectedReports, readReport, vekOf } from '../../rigs/attest/report-vectors.ts'
import { expectGolden } from '../../rigs/golden.ts'

const milan = decodeReport(await readReport('milan-v3.bin'))
const turin = decodeReport(await readReport('turin-v5.bin'))

/** The product is the one that the CPUID tells; in version 2, the named one. */
function identified(report: SnpReport, product: Product | null = null): IdentifiedReport {
  const identity = identifyReport(report, product)
  if (identity.kind === 'unknown') throw new Error(identity.reason)
  return identity
}

/** Names of the checks with this outcome. */
function named(outcome: Outcome, report: SnpReport, policy: Policy, product: Product | null = null) {
  return appraise(identified(report, product), policy)
    .filter(check => check.outcome === outcome)
    .map(check => check.name)
}

const checkNames = appraise(identified(milan), lax).map(({ name }) => name)

describe('appraise', () => {
  // Goal: the checks are those of the golden text, in its order, whatever the policy; Turin has its FMC besides.
  test('names', () => {
    expectGolden('policy-checks.txt', `${checkNames.join('\n')}\n`)
    const ofTurin = [...checkNames]
    ofTurin.splice(ofTurin.indexOf('minimum-launch-tcb-bootloader'), 0, 'minimum-launch-tcb-fmc')
    ofTurin.splice(ofTurin.indexOf('minimum-tcb-bootloader'), 0, 'minimum-tcb-fmc')
    for (const policy of [lax, strictPolicy()]) {
      expect(appraise(identified(milan), policy).map(check => check.name)).toEqual(checkNames)
      expect(appraise(identified(turin), policy).map(check => check.name)).toEqual(ofTurin)
    }
  })

  // Goal: 'any' is said, not hidden: the check is there, not checked, not required, with a reason.
  test('any', () => {
    const checks = appraise(identified(milan), lax)
    expect(checks.filter(check => check.outcome !== 'not-checked')).toEqual([])
    for (const check of checks.filter(check => check.outcome === 'not-checked'))
      expect(check).toMatchObject({
        required: false,
        reason: check.name === 'vmpl' ? "0; the policy has 'any'" : "the policy has 'any'",
      })
    expect(verdict(checks).ok).toBe(true)
  })

  // Goal: real reports at VMPL 0 meet the default policy; the one at VMPL 1 fails that check alone.
  test.each(expectedReports)('$report under strictPolicy', async expected => {
    const checks = appraise(
      identified(decodeReport(await readReport(expected.report)), expected.product),
      strictPolicy(),
    )
    const failed = checks.filter(check => check.outcome === 'fail').map(check => check.name)
    expect(failed).toEqual(expected.vmpl === 0 ? [] : ['vmpl'])
    expect(verdict(checks).ok).toBe(expected.vmpl === 0)
  })

  // Goal: nothing is appraised as another product than the CPUID's, whatever the policy; in version 2 the named one
  // counts.
  test('product', async () => {
    for (const product of ['genoa', 'turin'] as const) expect(identifyReport(milan, product).kind).toBe('unknown')
    const unknown = { ...milan, cpuid: { family: 0x1b, model: 0, stepping: 0 } }
    for (const product of PRODUCTS) expect(identifyReport(unknown, product).kind).toBe('unknown')
    const old = decodeReport(await readReport('milan-v2.bin'))
    expect(identifyReport(old, null).kind).toBe('unknown')
    expect(named('fail', old, { ...lax, products: ['genoa'] }, 'milan')).toEqual(['product-allowed'])
    expect(named('pass', old, { ...lax, products: ['genoa', 'milan'] }, 'milan')).toEqual(['product-allowed'])
  })

  // Goal: a report of a debuggable guest fails the policy; that it is also unsigned is another check.
  test('debug', async () => {
    const vek = await vekOf('milan-v3.bin')
    const debug = { ...milan, policy: milan.policy | (1n << 19n) }
    expect(named('fail', debug, strictPolicy())).toEqual(['guest-policy-debug'])
    expect(await verifyReportSignature(encodeReport(debug), vek)).toMatchObject({ outcome: 'fail' })
    expect(await verifyReportSignature(encodeReport(milan), vek)).toMatchObject({ outcome: 'pass' })
    expect(named('fail', milan, strictPolicy())).toEqual([])
    expect(named('fail', debug, { ...strictPolicy(), guestPolicy: lax.guestPolicy })).toEqual([])
  })

  // Goal: the default refuses migration, a missing bit 17, bits without a name, and other VMPLs.
  test('strictPolicy', () => {
    const failed = (change: Partial<SnpReport>) => named('fail', { ...milan, ...change }, strictPolicy())
    expect(failed({ policy: milan.policy | (1n << 18n) })).toEqual(['guest-policy-migrate'])
    expect(failed({ policy: milan.policy & ~(1n << 17n) })).toEqual(['guest-policy-reserved-one'])
    expect(failed({ policy: milan.policy | (1n << 26n) })).toEqual(['guest-policy-unknown'])
    expect(failed({ policy: milan.policy | (1n << 63n) })).toEqual(['guest-policy-unknown'])
    for (const vmpl of [1, 2, 3, 4, 0xffff_ffff]) expect(failed({ vmpl })).toEqual(['vmpl'])
  })
})

describe('bits', () => {
  // Goal: over every bit, rule and state: 'required' wants it set, 'forbidden' wants it clear, and no other check
  // moves.
  test.each([
    ['guestPolicy', 'policy', POLICY_BITS],
    ['platformInfo', 'platformInfo', PLATFORM_BITS],
  ] as const)('%s', (field, source, table) => {
    const prefix = field === 'guestPolicy' ? 'guest-policy-' : 'platform-info-'
    for (const [name, bit] of Object.entries(table)) {
      for (const rule of ['required', 'forbidden'] as const) {
        for (const isSet of [true, false]) {
          const report = {
            ...milan,
            [source]: isSet ? 1n << BigInt(bit) : ~(1n << BigInt(bit)) & 0xffff_ffff_ffff_ffffn,
          }
          const policy = { ...lax, [field]: { ...lax[field], [name]: rule } }
          const check = prefix + name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)
          const holds = isSet === (rule === 'required')
          expect(named('fail', report, policy)).toEqual(holds ? [] : [check])
          expect(named('pass', report, policy)).toEqual(holds ? [check] : [])
        }
      }
    }
  })

  // Goal: bits without a name fail where the policy forbids them, with their numbers.
  test('unknown', () => {
    const policy: Policy = { ...lax, platformInfo: { ...lax.platformInfo, unknown: 'forbidden' } }
    expect(named('fail', { ...milan, platformInfo: 0xffn }, policy)).toEqual([])
    const failed = appraise(identified({ ...milan, platformInfo: 0x1_0000_0100n }), policy).find(
      check => check.outcome === 'fail',
    )
    expect(failed).toMatchObject({
      name: 'platform-info-unknown',
      reason: 'bits without a known meaning are set: 8, 32',
    })
    expect(
      named(
        'fail',
        { ...milan, policy: 0xffffn },
        { ...lax, guestPolicy: { ...lax.guestPolicy, unknown: 'forbidden' } },
      ),
    ).toEqual([])
  })
})

describe('values', () => {
  const other = (bytes: Uint8Array) => bytes.map((byte, at) => (at === bytes.length - 1 ? byte ^ 1 : byte))

  // Goal: one byte of difference is a difference, in every field that is compared whole.
  test.each([
    ['host-data', 'hostData', (bytes: Uint8Array) => ({ hostData: bytes })],
    ['report-data', 'reportData', (bytes: Uint8Array) => ({ reportData: bytes })],
    ['id-key-digest', 'idKeyDigest', (bytes: Uint8Array) => ({ idKeyDigest: bytes })],
    ['author-key-digest', 'authorKeyDigest', (bytes: Uint8Array) => ({ authorKeyDigest: bytes })],
    ['measurement', 'measurement', (bytes: Uint8Array) => ({ measurements: [bytes] })],
    ['chip-id', 'chipId', (bytes: Uint8Array) => ({ chipIds: [bytes] })],
  ] as const)('%s', (name, field, change) => {
    const value = milan[field]
    expect(named('pass', milan, { ...lax, ...change(value) })).toEqual([name])
    expect(named('fail', milan, { ...lax, ...change(other(value)) })).toEqual([name])
    expect(named('fail', milan, { ...lax, ...change(value.slice(1)) })).toEqual([name])
  })

  // Goal: in a list one match is enough, and no match is a failure.
  test('lists', () => {
    const { measurement } = milan
    expect(named('fail', milan, { ...lax, measurements: [other(measurement), measurement] })).toEqual([])
    const failed = appraise(identified(milan), { ...lax, measurements: [other(measurement), new Uint8Array(48)] })
    expect(failed.find(check => check.outcome === 'fail')?.reason).toEndWith(' is not one of the 2 allowed')
    expect(named('fail', milan, { ...lax, measurements: [] })).toEqual(['measurement'])
    expect(named('fail', { ...milan, vmpl: 2 }, { ...lax, vmpls: [0, 2] })).toEqual([])
    expect(named('fail', { ...milan, vmpl: 1 }, { ...lax, vmpls: [0, 2] })).toEqual(['vmpl'])
  })

  // Goal: an unsigned report counts for no signer, and each signer only for itself.
  test('signers', () => {
    const failed = (signer: SnpReport['signer'], signers: Policy['signers']) =>
      named('fail', { ...milan, signer }, { ...lax, signers })
    expect([failed('vcek', ['vcek']), failed('vlek', ['vcek', 'vlek'])]).toEqual([[], []])
    expect([failed('vlek', ['vcek']), failed('none', ['vcek', 'vlek'])]).toEqual([['signer'], ['signer']])
  })

  // Goal: reserved bytes count only where the policy says so.
  test('reserved bytes', () => {
    const odd = { ...milan, reserved: other(milan.reserved) }
    expect(named('fail', odd, { ...lax, reservedBytes: 'zero' })).toEqual(['reserved-bytes'])
    expect(named('fail', milan, { ...lax, reservedBytes: 'zero' })).toEqual([])
    expect(named('fail', odd, lax)).toEqual([])
  })
})

describe('what firmware never writes', () => {
  // Goal: key_info has two named bits and a signing key; each named bit is judged, any other is refused unless the
  // policy says 'any'.
  test('bits of key_info', () => {
    const failed = (keyInfo: number, rules: Partial<Policy['keyInfo']>) =>
      named('fail', { ...milan, keyInfo }, { ...lax, keyInfo: { ...lax.keyInfo, ...rules } })
    expect(milan.keyInfo).toBe(0)
    for (const [bit, rule, name] of [
      [0, 'authorKeyEnabled', 'key-info-author-key-enabled'],
      [1, 'maskChipKey', 'key-info-mask-chip-key'],
    ] as const) {
      expect(failed(1 << bit, { [rule]: 'forbidden' })).toEqual([name])
      expect(failed(0, { [rule]: 'required' })).toEqual([name])
      expect(failed(1 << bit, { [rule]: 'required', unknown: 'forbidden' })).toEqual([])
    }
    for (const keyInfo of [0, 0x04, 0x1c, 0x1f]) expect(failed(keyInfo, { unknown: 'forbidden' })).toEqual([])
    for (let bit = 5; bit < 32; bit += 1) {
      expect(failed((1 << bit) >>> 0, { unknown: 'forbidden' })).toEqual(['key-info-unknown'])
      expect(failed((1 << bit) >>> 0, {})).toEqual([])
    }
  })

  // Goal: CURRENT below COMMITTED or REPORTED in any one component is refused, equal and above are not, and more of
  // another does not help.
  test('TCBs out of order', () => {
    const ordered: Policy = { ...lax, tcbOrder: 'required' }
    for (const [report, product] of [
      [milan, 'milan'],
      [turin, 'turin'],
    ] as const) {
      expect(named('fail', report, ordered)).toEqual([])
      const current = decodeTcb(report.rawTcb.current, product)
      for (const component of tcbComponentsOf(product)) {
        const more = encodeTcb({ ...current, [component]: (current[component] ?? 0) + 1 }, product)
        const failed = (rawTcb: Partial<SnpReport['rawTcb']>, policy: Policy = ordered) =>
          named('fail', { ...report, rawTcb: { ...report.rawTcb, ...rawTcb } }, policy)
        expect(failed({ committed: more })).toEqual(['tcb-order-committed'])
        expect(failed({ reported: more })).toEqual(['tcb-order-reported'])
        expect(failed({ committed: more, reported: more }, lax)).toEqual([])
        expect(failed({ current: more, launch: 0n })).toEqual([])
        const others = Object.fromEntries(tcbComponentsOf(product).map(kind => [kind, kind === component ? 0 : 255]))
        const uneven = encodeTcb({ ...current, ...others }, product)
        expect(failed({ current: uneven, reported: 0n })).toEqual(
          current[component] === 0 ? [] : ['tcb-order-committed'],
        )
      }
    }
  })

  // Goal: the same for the version of the firmware, where build follows minor follows major.
  test('firmware out of order', () => {
    const failed = (current: Partial<SnpReport['current']>) =>
      named('fail', { ...milan, current: { ...milan.current, ...current } }, { ...lax, tcbOrder: 'required' })
    expect(milan.committed).toEqual({ major: 1, minor: 55, build: 29 })
    expect([failed({}), failed({ build: 30 }), failed({ minor: 56, build: 0 })]).toEqual([[], [], []])
    for (const below of [{ build: 28 }, { minor: 54, build: 255 }, { major: 0, minor: 255 }])
      expect(failed(below)).toEqual(['firmware-order'])
  })

  // Goal: a TCB that cannot be read as the product's is out of order, and nothing is thrown.
  test('of another layout', () => {
    const misnamed = identified({ ...turin, version: 2, cpuid: null }, 'milan')
    const failed = appraise(misnamed, { ...lax, tcbOrder: 'required' }).filter(check => check.outcome === 'fail')
    expect(failed.map(check => check.name)).toEqual(['tcb-order-committed', 'tcb-order-reported'])
    expect(failed[0]?.reason).toContain('TCB: byte 3 is reserved on milan')
  })

  // Goal: the default refuses each of them, and no real report has one of them.
  test('by default', async () => {
    const strict: Policy = { ...strictPolicy(), vmpls: 'any' }
    const out = encodeTcb({ bootloader: 255, tee: 0, snp: 0, microcode: 0, fmc: null }, 'milan')
    for (const [change, name] of [
      [{ reserved: milan.reserved.with(0, 1) }, 'reserved-bytes'],
      [{ keyInfo: 0x20 }, 'key-info-unknown'],
      [{ rawTcb: { ...milan.rawTcb, committed: out } }, 'tcb-order-committed'],
      [{ rawTcb: { ...milan.rawTcb, reported: out } }, 'tcb-order-reported'],
      [{ current: { ...milan.current, build: 0 } }, 'firmware-order'],
    ] as const)
      expect(named('fail', { ...milan, ...change }, strict)).toEqual([name])
    for (const { report, product } of expectedReports) {
      const read = decodeReport(await readReport(report))
      expect([report, named('fail', read, strict, product)]).toEqual([report, []])
    }
  })
})

describe('minimums', () => {
  const least = { bootloader: 4, tee: 0, snp: 24, microcode: 219 }
  const minimums = (milanMinimum: typeof least | 'any') =>
    ({ milan: milanMinimum, genoa: 'any', turin: 'any' }) as const

  // Goal: each component counts for itself: equal is enough, one more is not, and more of another does not help.
  test('TCB', () => {
    for (const [prefix, field] of [
      ['minimum-tcb-', 'minimumTcb'],
      ['minimum-launch-tcb-', 'minimumLaunchTcb'],
    ] as const) {
      expect(named('fail', milan, { ...lax, [field]: minimums(least) })).toEqual([])
      expect(named('pass', milan, { ...lax, [field]: minimums(least) })).toHaveLength(4)
      for (const component of ['bootloader', 'tee', 'snp', 'microcode'] as const) {
        const more = { bootloader: 0, tee: 0, snp: 0, microcode: 0, [component]: least[component] + 1 }
        expect(named('fail', milan, { ...lax, [field]: minimums(more) })).toEqual([prefix + component])
      }
      expect(named('pass', milan, { ...lax, [field]: minimums('any') })).toEqual([])
    }
  })

  // Goal: the reported and the launch TCB count, not the current or the committed one.
  test('which TCB', () => {
    const low = encodeTcb({ bootloader: 0, tee: 0, snp: 0, microcode: 0, fmc: null }, 'milan')
    const failed = (change: Partial<SnpReport['rawTcb']>) =>
      named(
        'fail',
        { ...milan, rawTcb: { ...milan.rawTcb, ...change } },
        { ...lax, minimumTcb: minimums(least), minimumLaunchTcb: minimums(least) },
      )
    expect(failed({ current: low, committed: low })).toEqual([])
    expect(failed({ reported: low })).toEqual(['minimum-tcb-bootloader', 'minimum-tcb-snp', 'minimum-tcb-microcode'])
    expect(failed({ launch: low })).toHaveLength(3)
  })

  // Goal: a minimum for another product does not count; Turin's FMC does.
  test('by product', () => {
    const ofTurin = { fmc: 1, bootloader: 'any', tee: 'any', snp: 2, microcode: 72 } as const
    const policy: Policy = { ...lax, minimumTcb: { milan: 'any', genoa: 'any', turin: ofTurin } }
    expect(named('fail', turin, policy, 'turin')).toEqual(['minimum-tcb-fmc', 'minimum-tcb-microcode'])
    expect(named('fail', milan, policy)).toEqual([])
  })

  // Goal: a TCB that is not of the product's layout fails every component that counts, and nothing is thrown.
  test('of another layout', () => {
    const policy: Policy = { ...lax, minimumTcb: minimums({ bootloader: 0, tee: 0, snp: 0, microcode: 0 }) }
    const misnamed = identified({ ...turin, version: 2, cpuid: null }, 'milan')
    const failed = appraise(misnamed, policy).filter(check => check.outcome === 'fail')
    expect(failed.map(check => check.name)).toEqual(
      ['bootloader', 'tee', 'snp', 'microcode'].map(component => `minimum-tcb-${component}`),
    )
    expect(failed[0]?.reason).toBe('TCB: byte 3 is reserved on milan but 2')
  })

  // Goal: firmware versions are ordered by major, minor, build, and both the current and the committed one count.
  test('firmware', () => {
    const failed = (major: number, minor: number, build: number) =>
      named('fail', milan, { ...lax, minimumFirmware: { major, minor, build } })
    const both = ['minimum-firmware-current', 'minimum-firmware-committed']
    expect(milan.current).toEqual({ major: 1, minor: 55, build: 29 })
    expect([failed(1, 55, 29), failed(1, 54, 255), failed(0, 255, 255)]).toEqual([[], [], []])
    expect([failed(1, 55, 30), failed(1, 56, 0), failed(2, 0, 0)]).toEqual([both, both, both])
    const rolledBack = { ...milan, committed: { ...milan.committed, build: 28 } }
    expect(named('fail', rolledBack, { ...lax, minimumFirmware: milan.current })).toEqual([
      'minimum-firmware-committed',
    ])
  })

  // Goal: the guest's SVN has an inclusive minimum.
  test('guest SVN', () => {
    const failed = (guestSvn: number) => named('fail', { ...milan, guestSvn }, { ...lax, minimumGuestSvn: 5 })
    expect([failed(4), failed(5), failed(6)]).toEqual([['minimum-guest-svn'], [], []])
  })
})
