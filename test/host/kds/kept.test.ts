// Kept files of the key distribution service, as status and doctor show them.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { collateralProblem, keptCollateral } from '../../../src/host/kds/kept.ts'

const dayMs = 86_400_000
const nowMs = Date.UTC(2026, 10, 20)

test('goal: the age of each file and the end of the CRL are read from the cache, and nothing there is no failure', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'srt-kept-'))
  using _ = { [Symbol.dispose]: () => rmSync(dir, { recursive: true }) }
  const none = keptCollateral(join(dir, 'nothing'), 'genoa')
  expect(none).toEqual({
    product: 'genoa',
    veks: { count: 0, fetchedAtMs: null },
    chainFetchedAtMs: null,
    crlFetchedAtMs: null,
    crlNextUpdateMs: null,
  })
  const put = (name: string, bytes: Uint8Array | string, atMs: number) => {
    writeFileSync(join(dir, name), bytes)
    utimesSync(join(dir, name), atMs / 1000, atMs / 1000)
  }
  const { authority } = await simulatedPlatform('genoa')
  const nextUpdate = new Date(nowMs + 60 * dayMs)
  const crl = await issueSimulatedCrl(authority, { thisUpdate: new Date(nowMs), nextUpdate, revoked: [] })
  put('crl-vcek-genoa.der', crl, nowMs - dayMs)
  put('chain-vcek-genoa.pem', 'PEM', nowMs - 2 * dayMs)
  put('vcek-genoa-aa-1.der', 'DER', nowMs - 4 * dayMs)
  put('vcek-genoa-aa-2.der', 'DER', nowMs - 3 * dayMs)
  put('vcek-milan-aa-1.der', 'DER', nowMs)
  const kept = keptCollateral(dir, 'genoa')
  expect(kept).toEqual({
    product: 'genoa',
    veks: { count: 2, fetchedAtMs: nowMs - 3 * dayMs },
    chainFetchedAtMs: nowMs - 2 * dayMs,
    crlFetchedAtMs: nowMs - dayMs,
    crlNextUpdateMs: nextUpdate.getTime(),
  })
  expect(collateralProblem(kept, nowMs)).toBeNull()
  put('crl-vcek-genoa.der', 'nonsense', nowMs)
  expect(collateralProblem(keptCollateral(dir, 'genoa'), nowMs)).toMatchObject({
    kind: 'bad',
    text: 'the CRL cannot be read',
  })
})

test('goal: each thing that is wrong has its kind, the worst first', () => {
  const good = {
    product: 'genoa' as const,
    veks: { count: 0, fetchedAtMs: null },
    chainFetchedAtMs: nowMs,
    crlFetchedAtMs: nowMs,
    crlNextUpdateMs: nowMs + 60 * dayMs,
  }
  const kinds = [
    {},
    { chainFetchedAtMs: null },
    { chainFetchedAtMs: null, crlFetchedAtMs: null },
    { crlNextUpdateMs: null },
    { crlNextUpdateMs: nowMs },
    { crlNextUpdateMs: nowMs + dayMs },
    { crlFetchedAtMs: nowMs - 3 * dayMs },
    { crlFetchedAtMs: nowMs - 100 * dayMs, crlNextUpdateMs: nowMs - dayMs },
  ].map(change => collateralProblem({ ...good, ...change }, nowMs))
  expect(kinds.map(problem => problem?.kind ?? 'good')).toEqual([
    'good',
    'bad',
    'bad',
    'bad',
    'bad',
    'soon',
    'soon',
    'bad',
  ])
  expect(kinds[2]?.text).toBe('chain and CRL could not be fetched yet')
})
