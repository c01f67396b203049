// Revocation lists. No real one of AMD's is public, so these are a simulated ARK's and forgers'.

import { beforeAll, describe, expect, test } from 'bun:test'
import {
  type SimulatedPlatform,
  simulatedAsOf,
  simulatedPlatform,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { issueSimulatedCrl, simulatedName } from '../../../src/attest/simulator/certificates.ts'
import type { Check } from '../../../src/attest/verdict.ts'
import { verdict } from '../../../src/attest/verdict.ts'
import { decodeCertificate, OID } from '../../../src/attest/x509/certificate.ts'
import { decodeCrl } from '../../../src/attest/x509/crl.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { chainChecks, failed, vector } from '../../rigs/attest/chain-vectors.ts'
import { forgeCrl, pss } from '../../rigs/attest/forged-chain.ts'

const thisUpdate = new Date('2026-11-01T00:00:00Z')
const nextUpdate = new Date('2026-12-01T00:00:00Z')

let platform: SimulatedPlatform
let report: Uint8Array
let vlekReport: Uint8Array
let serials: Readonly<Record<'ark' | 'ask' | 'asvk', string>>

beforeAll(async () => {
  platform = await simulatedPlatform('milan')
  report = await platform.report()
  vlekReport = await platform.report({ signer: 'vlek' })
  const { ark, ask, asvk } = platform.authority.root
  const serialOf = (der: Uint8Array) => decodeCertificate(der).serial
  serials = { ark: serialOf(ark), ask: serialOf(ask), asvk: serialOf(asvk) }
})

async function checksWith(
  crl: Uint8Array | string | undefined,
  asked: { asOf?: Date | number; requireCrl?: boolean; kind?: 'vcek' | 'vlek' } = {},
): Promise<Check[]> {
  const { root } = platform.authority
  const kind = asked.kind ?? 'vcek'
  return await chainChecks(
    { vek: platform[kind], roots: [root], crl },
    {
      report: kind === 'vcek' ? report : vlekReport,
      asOf: asked.asOf ?? simulatedAsOf,
      requireCrl: asked.requireCrl ?? true,
    },
  )
}

async function revocation(...asked: Parameters<typeof checksWith>): Promise<Check | undefined> {
  return (await checksWith(...asked)).find(check => check.name === 'chain-revocation')
}

function crlOf(revoked: readonly string[]): Promise<Uint8Array> {
  const entries = revoked.map(serial => ({ serial, at: thisUpdate }))
  return issueSimulatedCrl(platform.authority, { thisUpdate, nextUpdate, revoked: entries })
}

/** A list with the ARK's own name and key, but for what a test changes. */
async function forged(changes: Partial<Parameters<typeof forgeCrl>[0]>): Promise<Uint8Array> {
  const signingKey = platform.authority.keys.ark.privateKey
  return await forgeCrl({ issuer: simulatedName('ARK-Milan'), signingKey, thisUpdate, nextUpdate, ...changes })
}

test('a good one, in either form', async () => {
  // Goal: an empty list, and one that lists strangers, pass; as DER and as PEM.
  for (const crl of [await crlOf([]), await crlOf(['0c0ffee0', '01'])]) {
    expect(await revocation(crl)).toMatchObject({ outcome: 'pass', required: true })
    expect(await revocation(toPem(crl, 'X509 CRL'))).toMatchObject({ outcome: 'pass' })
    expect(verdict(await checksWith(crl)).ok).toBe(true)
  }
})

test('none', async () => {
  // Goal: without a list the check is not made; whether that is bad is the caller's word.
  expect(await revocation(undefined, { requireCrl: true })).toMatchObject({ outcome: 'not-checked', required: true })
  expect(await revocation(undefined, { requireCrl: false })).toMatchObject({ outcome: 'not-checked', required: false })
  expect(verdict(await checksWith(undefined, { requireCrl: true })).ok).toBe(false)
  expect(verdict(await checksWith(undefined, { requireCrl: false })).ok).toBe(true)
})

describe('revoked', () => {
  const table = [
    ['ask', 'vcek', true],
    ['ask', 'vlek', false],
    ['asvk', 'vlek', true],
    ['asvk', 'vcek', false],
    ['ark', 'vcek', true],
    ['ark', 'vlek', true],
  ] as const

  test.each(table)('%s, for a %s', async (role, kind, isBad) => {
    // Goal: a revoked authority ends its own chains and no others, whether a list was required or not.
    const crl = await crlOf(['0c0ffee0', serials[role]])
    for (const requireCrl of [true, false]) {
      const checks = await checksWith(crl, { kind, requireCrl })
      expect(failed(checks)).toEqual(isBad ? ['chain-revocation'] : [])
    }
  })

  test('named in the reason', async () => {
    // Goal: an operator reads which serial number it was.
    expect((await revocation(await crlOf([serials.ask])))?.reason).toContain(serials.ask)
  })
})

test('out of its time', async () => {
  // Goal: in force from thisUpdate to nextUpdate, not a millisecond before or after, required or not.
  const crl = await crlOf([])
  for (const [asOf, outcome] of [
    [thisUpdate.getTime(), 'pass'],
    [nextUpdate.getTime(), 'pass'],
    [thisUpdate.getTime() - 1, 'fail'],
    [nextUpdate.getTime() + 1, 'fail'],
  ] as const) {
    expect(await revocation(crl, { asOf, requireCrl: false })).toMatchObject({ outcome })
  }
  const endless = await forgeCrl({
    issuer: simulatedName('ARK-Milan'),
    signingKey: platform.authority.keys.ark.privateKey,
    thisUpdate,
  })
  expect((await revocation(endless, { requireCrl: false }))?.outcome).toBe('fail')
})

describe('forged', () => {
  test('by another', async () => {
    // Goal: neither the intermediate, nor another product's ARK, nor the right key under another name makes a list.
    const { ask } = platform.authority.keys
    const genoa = await simulatedPlatform('genoa')
    const lists = [
      await forged({ signingKey: ask.privateKey }),
      await forged({ issuer: simulatedName('SEV-Milan'), signingKey: ask.privateKey }),
      await forged({ issuer: simulatedName('ARK-Genoa') }),
      await issueSimulatedCrl(genoa.authority, { thisUpdate, nextUpdate, revoked: [] }),
    ]
    expect(await revocation(await forged({}))).toMatchObject({ outcome: 'pass' })
    for (const crl of lists) {
      expect(await revocation(crl, { requireCrl: false })).toMatchObject({ outcome: 'fail', required: true })
    }
  })

  test('in another way', async () => {
    // Goal: another hash or salt is refused although the key is the ARK's; so are lists that hold only a part.
    const partial = [
      ['2.5.29.27', true, Uint8Array.from([2, 1, 1])],
      ['2.5.29.28', true, Uint8Array.from([0x30, 0])],
    ] as const
    const lists = [
      await forged({ algorithm: { ...pss, saltLength: 32 } }),
      await forged({ extensions: [partial[0]] }),
      await forged({ extensions: [partial[1]] }),
    ]
    for (const crl of lists) expect((await revocation(crl, { requireCrl: false }))?.outcome).toBe('fail')
    const numbered = await forged({ extensions: [[OID.crlNumber, false, Uint8Array.from([2, 1, 1])]] })
    expect((await revocation(numbered))?.outcome).toBe('pass')
  })

  test('the same serial number twice', async () => {
    // Goal: a list that contradicts itself is refused.
    const crl = await forged({ revoked: ['0c0ffee0', '0c0ffee1'] })
    expect((await revocation(crl))?.outcome).toBe('pass')
    const at = toHex(crl).indexOf('0c0ffee1') / 2
    const twice = crl.with(at + 3, 0xe0)
    expect(await revocation(twice)).toMatchObject({ outcome: 'fail', reason: expect.stringContaining('twice') })
  })

  test('something else', async () => {
    // Goal: what is no list fails, and never escapes as an exception.
    const good = toPem(await crlOf([]), 'X509 CRL')
    const certificate = await vector('reports/milan-v2.vcek.der')
    for (const crl of [
      '',
      'CRL',
      new Uint8Array(0),
      new Uint8Array(4096),
      certificate,
      good + good,
      good.slice(0, -40),
    ]) {
      expect((await revocation(crl, { requireCrl: false }))?.outcome).toBe('fail')
    }
  })

  test('every byte changed', async () => {
    // Goal: no byte of a list can change, be cut or be added without the check failing.
    const crl = await crlOf(['0c0ffee0'])
    expect(decodeCrl(crl).revoked.size).toBe(1)
    for (let at = 0; at < crl.length; at += 1) {
      const changed = crl.with(at, (crl[at] ?? 0) ^ (1 << (at % 8)))
      expect([at, (await revocation(changed, { requireCrl: false }))?.outcome]).toEqual([at, 'fail'])
    }
    expect((await revocation(crl.subarray(0, -1)))?.outcome).toBe('fail')
    expect((await revocation(Uint8Array.from([...crl, 0])))?.outcome).toBe('fail')
  })
})
