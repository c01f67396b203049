// The given chain is judged: no built-in certificate silently replaces a given one.

import { beforeAll, describe, expect, test } from 'bun:test'
import {
  type SimulatedPlatform,
  simulatedAsOf,
  simulatedPlatform,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { GENOA_ROOT, MILAN_ROOT, type TrustedRoot } from '../../../src/attest/amd/roots.ts'
import { decodeRoot } from '../../../src/attest/amd/trusted-roots.ts'
import type { Check } from '../../../src/attest/verdict.ts'
import { chainChecks, failed, failures, vector } from '../../rigs/attest/chain-vectors.ts'
import { reissue } from '../../rigs/attest/forged-chain.ts'

const report = await vector('reports/milan-v2.bin')
const vek = await vector('reports/milan-v2.vcek.der')
const { ark, ask, asvk } = decodeRoot(MILAN_ROOT)

function reasonOf(checks: readonly Check[], name: string): string {
  return checks.find(check => check.name === name)?.reason ?? ''
}

describe("AMD's root", () => {
  const judge = async (chain: readonly Uint8Array[]) =>
    await chainChecks(chain.length === 0 ? { vek } : { vek, chain }, { report, product: 'milan' })

  // Goal: what was not given is taken from the trusted root, and the verdict names it.
  test('taken from the trusted root', async () => {
    for (const [chain, words] of [
      [[ask.der, ark.der], ''],
      [[ask.der], "the ARK is the trusted root's own, none was given"],
      [[ask.der, asvk.der], "the ARK is the trusted root's own, none was given"],
      [[], "both are the trusted root's own, none was given"],
    ] as const) {
      const checks = await judge(chain)
      expect(failures(checks)).toBe('')
      const reason = reasonOf(checks, 'chain-certificates')
      expect(reason.split('; ')[1] ?? '').toBe(words)
    }
  })

  // Goal: an ARK that cannot be read is refused, wherever in the chain it stands.
  test('unreadable', async () => {
    for (const broken of [
      ark.der.slice(0, -1),
      ark.der.with(3, 0),
      Uint8Array.of(0x30, 0),
      new Uint8Array(40).fill(0x30),
    ])
      for (const chain of [
        [ask.der, broken],
        [broken, ask.der],
        [ask.der, ark.der, broken],
      ]) {
        const checks = await judge(chain)
        expect(failed(checks)).toEqual(['chain-certificates'])
        expect(reasonOf(checks, 'chain-certificates')).toContain('a certificate in it cannot be read')
      }
  })

  // Goal: an ARK of another name, renamed or another product's, does not pass for one that was not given.
  test('another', async () => {
    const { ark: genoa } = decodeRoot(GENOA_ROOT)
    // `ARK-Milan` to `ARK-Nilan`, as subject, as issuer and as both: the bytes are not signed any more.
    const text = new TextDecoder('latin1').decode(ark.der)
    const [first = -1, second = -1] = [...text.matchAll(/ARK-Milan/g)].map(match => match.index + 4)
    const renamed = (...places: number[]) => places.reduce((der, at) => der.with(at, 0x4e), ark.der)
    for (const other of [genoa.der, renamed(first), renamed(second), renamed(first, second)]) {
      const checks = await judge([ask.der, other])
      expect([failed(checks).length > 0, failed(checks)[0]]).toEqual([true, expect.stringMatching(/^chain-/)])
    }
    expect(reasonOf(await judge([ask.der, genoa.der]), 'chain-certificates')).toContain(
      'no ARK named ARK-Milan in it, but ARK-Genoa',
    )
  })
})

describe('a root without an ASVK', () => {
  let platform: SimulatedPlatform
  let root: TrustedRoot
  beforeAll(async () => {
    platform = await simulatedPlatform('genoa')
    root = { ...platform.authority.root, asvk: null }
  })

  // Goal: it vouches for VCEKs, with and without a chain beside them.
  test('VCEK', async () => {
    const asked = { report: await platform.report(), asOf: simulatedAsOf }
    for (const chain of [undefined, [platform.authority.root.ask, platform.authority.root.ark]])
      expect(failures(await chainChecks({ vek: platform.vcek, chain, roots: [root] }, asked))).toBe('')
  })

  // Goal: and for no VLEK, whoever brings the intermediate.
  test('VLEK', async () => {
    const asked = { report: await platform.report({ signer: 'vlek' }), asOf: simulatedAsOf }
    const { ark: own, ask: vcekIssuer, asvk: vlekIssuer } = platform.authority.root
    const bare = await chainChecks({ vek: platform.vlek, roots: [root] }, asked)
    expect(failed(bare)).toEqual(['chain-certificates'])
    const given = await chainChecks({ vek: platform.vlek, chain: [vlekIssuer, own], roots: [root] }, asked)
    expect(failures(given)).toBe('chain-names: the trusted root names no ASVK, so it certifies no VLEK')
    // Nor an ASK that is named like an ASVK.
    const signingKey = platform.authority.keys.ask.privateKey
    const disguised = await reissue(platform.vlek, { issuer: nameOf(vcekIssuer), signingKey })
    const checks = await chainChecks({ vek: disguised, chain: [vcekIssuer, own], roots: [root] }, asked)
    expect(failed(checks)).toContain('chain-names')
  })
})

function nameOf(der: Uint8Array): Uint8Array {
  return decodeRoot({ product: 'genoa', ark: der, ask: der, asvk: null }).ark.subject
}
