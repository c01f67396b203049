// Goal: there is no signed bit of a TDX quote that a relying party cannot refuse: each one, flipped, is refused by a
// field of a policy that says all that the genuine quote says, or before any policy for a reason that is named here.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { appraiseTdx } from '../../../src/attest/tdx/appraise.ts'
import { encodeTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { parseTdxPolicy, TDX_POLICY_FIELDS, type TdxPolicy } from '../../../src/attest/tdx/policy.ts'
import { decodeQuote, HEADER, TD_REPORT_15, type TdxQuote } from '../../../src/attest/tdx/quote.ts'
import { exactTdxPolicy, laxTdxPolicy } from '../../rigs/attest/tdx/exact-policy.ts'
import { simulatedQuotes } from '../../rigs/attest/tdx/quotes.ts'

type Field = keyof typeof TDX_POLICY_FIELDS

const fields = Object.keys(TDX_POLICY_FIELDS) as Field[]
const beside = { pck: null, level: null, collateral: null }

/** Refused before any policy: another value cannot be read, or `qe-vendor` refuses it. */
const WITHOUT_POLICY = ['version', 'attestationKeyType', 'teeType', 'qeVendorId', 'body']

const REFUSED_BY: Readonly<Record<string, readonly Field[]>> = {
  reserved8: ['headerReserved'],
  userData: ['userData'],
  teeTcbSvn: ['teeTcbSvns', 'minimumTeeTcbSvn'],
  mrSeam: ['mrSeams'],
  mrSignerSeam: ['mrSignerSeams'],
  seamAttributes: ['seamAttributes'],
  tdAttributes: ['tdAttributes'],
  xfam: ['xfam'],
  mrTd: ['mrTds'],
  mrConfigId: ['mrConfigId'],
  mrOwner: ['mrOwner'],
  mrOwnerConfig: ['mrOwnerConfig'],
  rtmr0: ['rtmr0'],
  rtmr1: ['rtmr1'],
  rtmr2: ['rtmr2'],
  rtmr3: ['rtmr3'],
  reportData: ['reportData'],
  teeTcbSvn2: ['teeTcbSvn2s'],
  mrServiceTd: ['mrServiceTd'],
}

function fieldAt({ version }: TdxQuote, byte: number): string {
  const of = (layout: object, at: number) =>
    Object.entries(layout).find(([, [offset, size]]) => at >= offset && at < offset + size)?.[0]
  const bodyAt = version === 5 ? 54 : 48
  if (byte >= 48 && byte < bodyAt) return 'body'
  return (byte < 48 ? of(HEADER, byte) : of(TD_REPORT_15, byte - bodyAt)) ?? 'none'
}

/** Which field of the policy makes which checks: those that are made when it alone says something. */
function fieldsOfChecks(quote: TdxQuote, exact: TdxPolicy): Map<string, Field> {
  const made = new Map<string, Field>()
  for (const field of fields) {
    for (const check of appraiseTdx(quote, { ...laxTdxPolicy, [field]: exact[field] }, beside)) {
      if (check.outcome !== 'not-checked') made.set(check.name, field)
    }
  }
  return made
}

describe.each([...(await simulatedQuotes())])('$name', ({ quote: bytes }) => {
  // Goal: the table above names the field that refuses it.
  test('every signed bit', () => {
    const genuine = decodeQuote(bytes)
    const policy = exactTdxPolicy(genuine)
    expect(parseTdxPolicy(JSON.parse(JSON.stringify(encodeTdxPolicy(policy))))).toEqual(policy)
    expect(appraiseTdx(genuine, policy, beside).filter(({ outcome }) => outcome === 'fail')).toEqual([])
    const fieldOf = fieldsOfChecks(genuine, policy)
    const missed: string[] = []
    const counts = { byPolicy: 0, before: 0 }
    for (let bit = 0; bit < genuine.signedBytes.length * 8; bit += 1) {
      const at = bit >> 3
      const field = fieldAt(genuine, at)
      const refused = refusing(bytes.with(at, (bytes[at] ?? 0) ^ (1 << (bit & 7))), policy, fieldOf)
      if (refused === 'before' || field === 'qeVendorId') {
        counts.before += 1
        if (!WITHOUT_POLICY.includes(field)) missed.push(`${field}, bit ${bit}: refused before the policy`)
        continue
      }
      counts.byPolicy += 1
      if (!REFUSED_BY[field]?.some(wanted => refused.includes(wanted))) missed.push(`${field}, bit ${bit}: ${refused}`)
    }
    expect(missed).toEqual([])
    // Version, key type, TEE type, vendor; in version 5 also type and size of the body.
    expect(counts.before).toBe((2 + 2 + 4 + 16 + (genuine.version === 5 ? 6 : 0)) * 8)
    expect(counts.byPolicy).toBe((4 + 20 + (genuine.report.added === null ? 584 : 648)) * 8)
  })
})

/** Fields of the policy that refuse these bytes; 'before' where no policy is reached. */
function refusing(bytes: Uint8Array, policy: TdxPolicy, fieldOf: ReadonlyMap<string, Field>): Field[] | 'before' {
  try {
    const failed = appraiseTdx(decodeQuote(bytes), policy, beside).filter(({ outcome }) => outcome === 'fail')
    return failed.flatMap(({ name }) => fieldOf.get(name) ?? [])
  } catch (error) {
    if (error instanceof Malformed) return 'before'
    throw error
  }
}
