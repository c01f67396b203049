// Goal: there is no signed bit of a report that a relying party cannot refuse: each one, flipped, is refused by a field
// of a policy that says all that the genuine report says, or cannot be flipped for a reason that is named here.

import { describe, expect, test } from 'bun:test'
import type { Product } from '../../../src/attest/amd/product.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { appraise } from '../../../src/attest/policy/appraise.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { type Policy, parsePolicy } from '../../../src/attest/policy/policy.ts'
import { POLICY_FIELDS } from '../../../src/attest/policy/schema.ts'
import { type IdentifiedReport, identifyReport } from '../../../src/attest/report/identify.ts'
import { decodeReport, FIELDS, reportSignedSizeBytes, reportVersions } from '../../../src/attest/report/report.ts'
import { verifyReportSignature } from '../../../src/attest/verify/report-signature.ts'
import { exactPolicy, laxPolicy } from '../../rigs/attest/exact-policy.ts'
import { expectedReports, readReport, vekOf } from '../../rigs/attest/report-vectors.ts'

type Field = keyof typeof POLICY_FIELDS

const fields = Object.keys(POLICY_FIELDS) as Field[]

/** Refused before any policy, with the reason. */
const WITHOUT_POLICY: Readonly<Record<string, string>> = {
  signatureAlgo: 'the signature check takes no algorithm but 1',
  version: 'another version cannot be read',
  keyInfo: 'the signing key has a reserved number',
}

/** The field of the policy that refuses each field of the report, wherever in it the bit is. */
const REFUSED_BY: Readonly<Record<string, readonly Field[]>> = {
  version: ['reportVersions'],
  guestSvn: ['minimumGuestSvn', 'maximumGuestSvn'],
  policy: ['guestPolicy', 'minimumPolicyAbi', 'maximumPolicyAbi'],
  familyId: ['familyId'],
  imageId: ['imageId'],
  vmpl: ['vmpls'],
  currentTcb: ['minimumCurrentTcb', 'maximumCurrentTcb'],
  platformInfo: ['platformInfo'],
  keyInfo: ['keyInfo', 'signers'],
  reportData: ['reportData'],
  measurement: ['measurements'],
  hostData: ['hostData'],
  idKeyDigest: ['idKeyDigest'],
  authorKeyDigest: ['authorKeyDigest'],
  reportId: ['reportId'],
  reportIdMa: ['reportIdMa'],
  reportedTcb: ['minimumTcb', 'maximumTcb'],
  cpuidFamily: ['processors', 'reservedBytes'],
  cpuidModel: ['processors', 'reservedBytes'],
  cpuidStepping: ['processors', 'reservedBytes'],
  chipId: ['chipIds', 'chipIdMasked'],
  committedTcb: ['minimumCommittedTcb', 'maximumCommittedTcb'],
  currentBuild: ['minimumCurrentFirmware', 'maximumCurrentFirmware'],
  currentMinor: ['minimumCurrentFirmware', 'maximumCurrentFirmware'],
  currentMajor: ['minimumCurrentFirmware', 'maximumCurrentFirmware'],
  committedBuild: ['minimumFirmware', 'maximumCommittedFirmware'],
  committedMinor: ['minimumFirmware', 'maximumCommittedFirmware'],
  committedMajor: ['minimumFirmware', 'maximumCommittedFirmware'],
  launchTcb: ['minimumLaunchTcb', 'maximumLaunchTcb'],
  launchMitigation: ['launchMitigations', 'reservedBytes'],
  currentMitigation: ['currentMitigations', 'reservedBytes'],
  reserved04c: ['reservedBytes'],
  reserved18b: ['reservedBytes'],
  reserved1eb: ['reservedBytes'],
  reserved1ef: ['reservedBytes'],
  reserved208: ['reservedBytes'],
}

function identified(bytes: Uint8Array, product: Product): IdentifiedReport | null {
  const identity = identifyReport(decodeReport(bytes), product)
  return identity.kind === 'known' ? identity : null
}

/** Which field of the policy makes which checks: those that are made when it alone says something. */
function fieldsOfChecks(genuine: IdentifiedReport, exact: Policy): Map<string, Field> {
  const made = new Map<string, Field>()
  for (const field of fields) {
    for (const check of appraise(genuine, { ...laxPolicy, [field]: exact[field] })) {
      if (check.outcome !== 'not-checked') made.set(check.name, field)
    }
  }
  return made
}

function fieldAt(byte: number): string {
  const found = Object.entries(FIELDS).find(([, [offset, size]]) => byte >= offset && byte < offset + size)
  if (found === undefined) throw new Error(`no field has byte ${byte}`)
  return found[0]
}

/** No report of version 4 is to be had: it is laid out as version 3, and nothing here asks for a signature. */
const walked = [
  ...expectedReports.map(({ report, product, report_version: version }) => ({ report, product, version })),
  { report: 'milan-v3.bin', product: 'milan', version: 4 } as const,
]

// Goal: no version that can be read is left out.
test('every version', () => {
  expect([...new Set(walked.map(({ version }) => version))].toSorted()).toEqual([...reportVersions])
})

describe.each(walked)('$report, version $version', ({ report: name, product, version }) => {
  // Goal: the table above names the field that refuses it.
  test('every signed bit', async () => {
    const bytes = (await readReport(name)).with(FIELDS.version[0], version)
    const genuine = identified(bytes, product)
    if (genuine === null) throw new Error('a vector of an unknown product')
    const policy = exactPolicy(genuine.report, product)
    // The policy is one that a relying party can write, and the report meets it.
    expect(parsePolicy(JSON.parse(JSON.stringify(encodePolicy(policy))))).toEqual(policy)
    expect(appraise(genuine, policy).filter(({ outcome }) => outcome === 'fail')).toEqual([])
    const fieldOf = fieldsOfChecks(genuine, policy)
    const missed: string[] = []
    const counts = { bits: 0, byPolicy: 0, before: 0 }
    for (let bit = 0; bit < reportSignedSizeBytes * 8; bit += 1) {
      const at = bit >> 3
      const field = fieldAt(at)
      const refused = refusing(bytes.with(at, (bytes[at] ?? 0) ^ (1 << (bit & 7))), { product, policy, fieldOf })
      counts.bits += 1
      if (refused === 'before') {
        counts.before += 1
        // A flipped CPUID is of another product, or of none.
        const isNamed = Object.hasOwn(WITHOUT_POLICY, field) || field.startsWith('cpuid')
        if (!isNamed) missed.push(`${field}, bit ${bit}: refused before the policy, for no reason named here`)
        continue
      }
      if (field === 'signatureAlgo') {
        counts.before += 1
        continue
      }
      counts.byPolicy += 1
      if (!REFUSED_BY[field]?.some(wanted => refused.includes(wanted))) missed.push(`${field}, bit ${bit}: ${refused}`)
    }
    expect(missed).toEqual([])
    expect(counts.bits).toBe(5376)
    expect(counts.byPolicy).toBeGreaterThan(5376 - 32 * 2 - 24)
  })
})

/** Fields of the policy that refuse these bytes; 'before' where no policy is reached. */
function refusing(
  bytes: Uint8Array,
  { product, policy, fieldOf }: { product: Product; policy: Policy; fieldOf: ReadonlyMap<string, Field> },
): Field[] | 'before' {
  let changed: IdentifiedReport | null
  try {
    changed = identified(bytes, product)
  } catch (error) {
    if (error instanceof Malformed) return 'before'
    throw error
  }
  if (changed === null) return 'before'
  const failed = appraise(changed, policy).filter(({ outcome }) => outcome === 'fail')
  return failed.flatMap(({ name }) => fieldOf.get(name) ?? [])
}

// Goal: every reason above is true: what it names is refused, though no policy asks for it.
test('what is refused before the policy', async () => {
  const bytes = await readReport('milan-v3.bin')
  const vek = await vekOf('milan-v3.bin')
  const flipped = (field: keyof typeof FIELDS, bit: number) => {
    const at = FIELDS[field][0] + (bit >> 3)
    return bytes.with(at, (bytes[at] ?? 0) ^ (1 << (bit & 7)))
  }
  for (let bit = 0; bit < 32; bit += 1) {
    const { outcome, reason } = await verifyReportSignature(flipped('signatureAlgo', bit), vek)
    expect([outcome, reason]).toEqual(['fail', `signature algorithm ${(1 ^ (1 << bit)) >>> 0} is not 1`])
  }
  for (let bit = 2; bit < 32; bit += 1) expect(() => decodeReport(flipped('version', bit))).toThrow('is not 2 to 5')
  for (const bit of [3, 4]) expect(() => decodeReport(flipped('keyInfo', bit))).toThrow('is reserved')
})
