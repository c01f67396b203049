// Chains: real ones pass, and each thing that ties them together is missed when it is not there.

import { describe, expect, test } from 'bun:test'
import { AMD_ROOTS, GENOA_ROOT, MILAN_ROOT, TURIN_ROOT } from '../../../src/attest/amd/roots.ts'
import { decodeTcb, TCB_COMPONENTS } from '../../../src/attest/amd/tcb.ts'
import { encodeTcb } from '../../../src/attest/amd/tcb-encode.ts'
import { decodeRoot } from '../../../src/attest/amd/trusted-roots.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { CHAIN_CHECKS, verifyChain } from '../../../src/attest/verify/chain.ts'
import { PREPARED_CHECKS, prepareChain } from '../../../src/attest/verify/chain-prepare.ts'
import { chainChecks, failed, failures, REAL, vector, vectorsAsOf } from '../../rigs/attest/chain-vectors.ts'

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)
const blocksOf = (pem: string) => pem.match(/-----BEGIN[\s\S]*?-----END CERTIFICATE-----\n?/g) ?? []
const roots = { milan: MILAN_ROOT, genoa: GENOA_ROOT, turin: TURIN_ROOT }

describe.each(REAL.map(item => [item.report, item] as const))('%s', (_name, { report, vek, product, asOf }) => {
  const read = async () => ({ report: await vector(`reports/${report}`), vek: await vector(`reports/${vek}`) })

  test('the chain holds', async () => {
    // Goal: real evidence passes, with every check named, in its order.
    const evidence = await read()
    const checks = await chainChecks(evidence, { report: evidence.report, product, asOf })
    expect(failures(checks)).toBe('')
    expect(checks.map(check => check.name)).toEqual([...PREPARED_CHECKS, ...CHAIN_CHECKS])
    const skipped = checks.filter(check => check.outcome === 'not-checked')
    const expected = report.includes('vlek') ? ['chain-revocation', 'vek-chip-id'] : ['chain-revocation']
    expect(skipped.map(check => [check.name, check.required])).toEqual(expected.map(name => [name, false]))
    expect(checks.every(check => check.outcome !== 'not-checked' || check.reason !== '')).toBe(true)
  })

  test('in every form and order', async () => {
    // Goal: PEM or DER, together or apart, in any order, with strangers in between: the same answer.
    const { report: bytes, vek: given } = await read()
    const root = decodeRoot(roots[product])
    const [leaf] = given[0] === 0x30 ? [toPem(given, 'CERTIFICATE')] : blocksOf(text(given))
    const intermediate = report.includes('vlek') ? root.asvk : root.ask
    const wanted = [leaf ?? '', toPem(intermediate.der, 'CERTIFICATE'), toPem(root.ark.der, 'CERTIFICATE')]
    const strangers = AMD_ROOTS.filter(root => root.product !== product).flatMap(root => [
      String(root.ark),
      String(root.ask),
    ])
    const [a = '', b = '', c = ''] = wanted
    const forms = [
      { vek: a, chain: b + c },
      { vek: a, chain: c + b },
      { vek: a, chain: [b, c] },
      { vek: a, chain: [root.ark.der, intermediate.der] },
      { vek: a, chain: intermediate.der },
      { vek: c + b + a },
      { vek: b + a + c },
      { vek: a },
      { vek: new TextEncoder().encode(a), chain: new TextEncoder().encode(`some text\n${c}\r\n${b}`) },
      { vek: strangers[0] + a, chain: [...strangers, b, ...strangers.toReversed(), c, b] },
    ]
    // The trusted root supplies missing certificates, and `chain-certificates` says so.
    const answer = async (form: (typeof forms)[number]) =>
      (await chainChecks(form, { report: bytes, product, asOf })).map(check =>
        check.name === 'chain-certificates'
          ? { ...check, reason: check.reason.replace(/; .*own, none was given$/, '') }
          : check,
      )
    const reference = await answer({ vek: a, chain: b + c })
    for (const form of forms) expect(await answer(form)).toEqual(reference)
  })

  test('another product’s root', async () => {
    // Goal: below the root of another product, nothing holds.
    const { report: bytes, vek: given } = await read()
    const others = AMD_ROOTS.filter(root => root.product !== product)
    const [leaf] = given[0] === 0x30 ? [given] : blocksOf(text(given))
    for (const other of others) {
      const bare = await chainChecks({ vek: leaf ?? '', roots: [other] }, { report: bytes, product, asOf })
      expect(failed(bare)).toEqual(['chain-certificates'])
      const chain = [other.ask, other.asvk, other.ark]
      const swapped = await chainChecks({ vek: leaf ?? '', chain }, { report: bytes, product, asOf })
      expect(failed(swapped)).toEqual(['chain-certificates'])
      const own = [roots[product].ask, roots[product].asvk, roots[product].ark]
      const full = await chainChecks({ vek: leaf ?? '', chain: own, roots: [other] }, { report: bytes, product, asOf })
      expect(failed(full)).toContain('chain-root')
    }
  })

  test('the other intermediate in its place', async () => {
    // Goal: the ASVK does not vouch for a VCEK, nor the ASK for a VLEK.
    const { report: bytes, vek: given } = await read()
    const [leaf] = given[0] === 0x30 ? [given] : blocksOf(text(given))
    const wrong = report.includes('vlek') ? roots[product].ask : roots[product].asvk
    const checks = await chainChecks(
      { vek: leaf ?? '', chain: [wrong, roots[product].ark] },
      { report: bytes, product, asOf },
    )
    expect(failed(checks)).toEqual(['chain-certificates'])
  })

  test('each TCB component one off', async () => {
    // Goal: every component of REPORTED_TCB counts, up and down, and CURRENT_TCB does not.
    const { report: bytes, vek: given } = await read()
    const prepared = await prepareChain({ vek: given })
    const decoded = decodeReport(bytes)
    const tcb = decodeTcb(decoded.rawTcb.reported, product)
    for (const component of TCB_COMPONENTS) {
      const value = tcb[component]
      if (value === null) continue
      for (const changed of [value + 1, value - 1].filter(value => value >= 0 && value <= 255)) {
        const raw = encodeTcb({ ...tcb, [component]: changed }, product)
        const reported = { ...decoded, rawTcb: { ...decoded.rawTcb, reported: raw } }
        expect(failed(await chainChecks(prepared, { report: reported, product, asOf }))).toEqual(['vek-tcb'])
        const others = {
          ...decoded,
          rawTcb: { current: raw, committed: raw, launch: raw, reported: decoded.rawTcb.reported },
        }
        expect(failed(await chainChecks(prepared, { report: others, product, asOf }))).toEqual([])
      }
    }
  })

  test('another chip, and a masked one', async () => {
    // Goal: each byte of a VCEK's hwID counts; a hidden chip is refused unless it is accepted by name; a VLEK binds no
    // chip.
    const { report: bytes, vek: given } = await read()
    const prepared = await prepareChain({ vek: given })
    const decoded = decodeReport(bytes)
    const refused = report.includes('vlek') ? [] : ['vek-chip-id']
    for (let at = 0; at < 64; at += 1) {
      const chipId = decoded.chipId.with(at, (decoded.chipId[at] ?? 0) ^ 1)
      expect(failed(await chainChecks(prepared, { report: { ...decoded, chipId }, product, asOf }))).toEqual(refused)
    }
    const masked = { ...decoded, chipId: new Uint8Array(64) }
    expect(failed(await chainChecks(prepared, { report: masked, product, asOf }))).toEqual(refused)
    const accepted = await chainChecks(prepared, { report: masked, product, asOf, maskedChipId: 'any' })
    expect(accepted.find(check => check.name === 'vek-chip-id')).toMatchObject({
      outcome: 'not-checked',
      required: false,
    })
  })

  test('out of its time', async () => {
    // Goal: valid on the first and last second that the VEK names, and not a millisecond beyond; no time is no time.
    const { report: bytes, vek: given } = await read()
    const prepared = await prepareChain({ vek: given })
    const { notBeforeMs = 0, notAfterMs = 0 } = prepared.found?.vek ?? {}
    const at = async (when: Date | number) =>
      failed(await chainChecks(prepared, { report: bytes, product, asOf: when }))
    expect([await at(notBeforeMs), await at(new Date(notAfterMs))]).toEqual([[], []])
    for (const when of [
      notBeforeMs - 1,
      notAfterMs + 1,
      0,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      new Date(Number.NaN),
      1e300,
    ]) {
      expect(await at(when)).toEqual(['chain-validity'])
    }
  })

  test('another key than the report names', async () => {
    // Goal: a VCEK does not answer for a report that names a VLEK, nor the other way, nor for one that names none.
    const { report: bytes, vek: given } = await read()
    const decoded = decodeReport(bytes)
    for (const signer of ['vcek', 'vlek', 'none'] as const) {
      const checks = await chainChecks({ vek: given }, { report: { ...decoded, signer }, product, asOf })
      expect(failed(checks)).toEqual(signer === decoded.signer ? [] : ['vek-signer'])
    }
  })

  test('another product', async () => {
    // Goal: the VEK of one product does not answer for the report of another, nor for one of an unknown product.
    const { report: bytes, vek: given } = await read()
    const prepared = await prepareChain({ vek: given })
    const question = { asOf, requireCrl: false, report: decodeReport(bytes), maskedChipId: 'refuse' } as const
    for (const other of (['milan', 'genoa', 'turin'] as const).filter(kind => kind !== product)) {
      expect(failed(verifyChain(prepared, { ...question, product: other }))).toContain('vek-product')
    }
    const unknown = verifyChain(prepared, { ...question, product: null })
    expect(failed(unknown)).toEqual(['vek-product'])
    expect(unknown.find(check => check.name === 'vek-tcb')).toMatchObject({ outcome: 'not-checked', required: true })
  })
})

test('damaged VCEKs', async () => {
  // Goal: the damaged certificates of the vectors fail at what is damaged.
  const report = await vector('reports/milan-v2.bin')
  const legacy = await chainChecks({ vek: await vector('reports/bad-vcek-legacy.der') }, { report, product: 'milan' })
  expect(failed(legacy)).toEqual(['chain-signatures', 'vek-chip-id', 'vek-tcb'])
  const wrapped = await chainChecks({ vek: await vector('reports/bad-vcek-new.der') }, { report, product: 'milan' })
  expect(failed(wrapped)).toEqual(['vek-certificate'])
})

test('the VLEK after its year', async () => {
  // Goal: a VLEK that has expired fails at its validity, and at nothing else.
  const report = await vector('reports/milan-v3-vlek.bin')
  const vek = await vector('reports/milan-v3-vlek.vlek.der')
  const asOf = new Date('2026-06-01T00:00:00Z')
  expect(failed(await chainChecks({ vek }, { report, asOf }))).toEqual(['chain-validity'])
})

test('without a report', async () => {
  // Goal: what needs a report is required and not checked, not passed.
  const prepared = await prepareChain({ vek: await vector('reports/turin-v5.chain.pem') })
  const checks = verifyChain(prepared, {
    asOf: vectorsAsOf,
    requireCrl: false,
    product: 'turin',
    report: null,
    maskedChipId: 'any',
  })
  const open = checks.filter(check => check.outcome === 'not-checked' && check.required).map(check => check.name)
  expect(open).toEqual(['vek-signer', 'vek-chip-id', 'vek-tcb'])
})
