import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { makeHybridKeys } from '../../src/attest/receipt/hybrid-keys.ts'
import { fromUtf8, utf8 } from '../../src/base/bytes.ts'
import { type BuildVerdict, verifyBuild } from '../../src/verifier/build.ts'
import type { BuildQuestion } from '../../src/verifier/build-question.ts'
import { type BuildCase, badChecks, flipped, openBuildCase, withFile, withJson } from '../rigs/build-case.ts'
import { buildQuestion, type ResultChanges, resultFiles, sampleResult } from '../rigs/build-result.ts'
import { countingRandom } from '../rigs/receipt-samples.ts'

let one: BuildCase
beforeAll(async () => {
  one = await openBuildCase()
})
afterAll(() => one.close())

// Goal: whoever has good receipts, or even a VM's keys, cannot put together what does not belong together.
describe('receipts', () => {
  const without = (name: string) =>
    withJson(one.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom[name] = null
    })

  test('one or both dropped', async () => {
    expect((await one.ask(without('dispatch'))).firstBroken).toBe('dispatch/evidence')
    expect((await one.ask(without('completion'))).firstBroken).toBe('completion/evidence')
    const neither = withJson(one.good.files, 'evidence.json', (value: Record<string, unknown>) =>
      Reflect.deleteProperty(value, 'strongroom'),
    )
    const verdict = await one.ask(neither)
    expect(verdict.firstBroken).toBe('receipts')
    expect(verdict.ok).toBe(false)
    const swapped = withJson(one.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      const { dispatch, completion } = value.strongroom
      value.strongroom = { dispatch: completion, completion: dispatch }
    })
    expect(badChecks(await one.ask(swapped))).toContain('dispatch/kind')
  })

  test('the report of the family dropped', async () => {
    const gone = withJson(one.good.files, 'evidence.json', (value: { evidence: unknown }) => {
      value.evidence = null
    })
    expect(badChecks(await one.ask(gone))).toEqual(['report/evidence'])
  })

  test('another nonce', async () => {
    const nonce = flipped(one.good.nonce, 3)
    const verdict = await one.ask(one.good.files, { nonce })
    expect(verdict.firstBroken).toBe('dispatch/nonce')
    expect(badChecks(verdict)).toEqual(['dispatch/nonce', 'completion/nonce', 'report/nonce', 'slsa-statement'])
    expect(badChecks(await one.ask(one.good.files, { nonce: one.good.nonce.subarray(0, 15) }))).toContain(
      'completion/nonce',
    )
  })

  const other = new Uint8Array(32).fill(0xaa)
  const lies: readonly [what: string, changes: ResultChanges, line: string][] = [
    ['the dispatch of another job', { dispatch: { jobId: 'another' } }, 'dispatch/job'],
    ['another source at the dispatch', { dispatch: { sourceDigest: other } }, 'dispatch/source'],
    ['another source at the completion', { completion: { sourceDigest: other } }, 'completion/source'],
    ['another dispatch', { completion: { dispatchDigest: other } }, 'completion/chained'],
    ['another network policy', { completion: { networkPolicy: 'open' } }, 'completion/network-policy'],
    ['another provenance', { completion: { provenanceDigest: other } }, 'completion/provenance-digest'],
    ['a nonce cut short', { completion: { nonce: other.subarray(0, 8) } }, 'completion/nonce'],
    ['a report of another VM', { familyReport: { report: { reportId: other } } }, 'report/one-vm'],
    ['a report over more', { familyReport: { reportData: new Uint8Array(64).fill(1) } }, 'report/report-data'],
  ]
  test.each(lies)('%s', async (_, changes, line) => {
    // Goal: whoever has the VM's keys cannot put together what does not belong together.
    const of = await sampleResult({ measurement: one.measurement, ...changes })
    const verdict = await one.ask(of.files)
    expect(verdict.ok).toBe(false)
    expect(verdict.firstBroken).toBe(line)
  })

  test('the receipt of another VM', async () => {
    // Goal: a dispatch by other keys, good by itself, is not of this build.
    const keys = makeHybridKeys(countingRandom(200))
    const of = await sampleResult({ measurement: one.measurement, keys })
    const mixed = withJson(one.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom.dispatch = of.dispatch
    })
    expect(badChecks(await one.ask(mixed))).toEqual(['completion/chained', 'one-vm'])
  })

  test('envelope and bundle by other keys', async () => {
    // Goal: their signatures count only under the keys for which the hardware vouches.
    const keys = makeHybridKeys(countingRandom(201))
    const of = await sampleResult({ measurement: one.measurement, keys })
    const files = new Map(of.files)
    const mixed = withJson(files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom = { dispatch: one.good.dispatch, completion: one.good.completion }
    })
    expect(badChecks(await one.ask(mixed))).toContain('slsa-envelope')
  })

  test('another measurement, another root, no pin', async () => {
    const elsewhere = await sampleResult({ measurement: new Uint8Array(48).fill(1) })
    expect((await one.ask(elsewhere.files)).firstBroken).toBe('launch-measurement')
    const base = await buildQuestion(one.good.nonce)
    const pinned = await one.ask(elsewhere.files, { policy: { ...base.policy, measurements: [one.measurement] } })
    expect(pinned.firstBroken).toBe('dispatch/measurement')
    expect((await one.ask(one.good.files, { roots: AMD_ROOTS })).firstBroken).toBe('dispatch/evidence')
    const unpinned = await one.ask(one.good.files, { igvm: 'any', image: 'any' })
    expect(badChecks(unpinned)).toEqual(['pin-measurement'])
  })

  test('what is no receipt and no result', async () => {
    for (const junk of [1, 'x', [], {}, { evidence: 1 }, { evidence: {} }]) {
      const files = withJson(one.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
        value.strongroom.completion = junk
      })
      expect((await one.ask(files)).ok).toBe(false)
    }
    expect((await one.ask(new Map())).ok).toBe(false)
    expect((await one.ask(one.good.files, { igvm: Uint8Array.of(1, 2, 3) })).ok).toBe(false)
  })
})

// Goal: kettle's own, made on Azure: read, and judged by the same rules. Their artifacts are not here, but for their digests.
describe('real results of another builder', () => {
  // Goal: kettle's own, made on Azure: read, and judged by the same rules. Their artifacts are not here, but for their digests.
  const builds = join(import.meta.dir, '../vectors/builds')
  const read = (name: string, file: string) => new Uint8Array(readFileSync(join(builds, name, file)))

  async function askVector(
    name: string,
    changes: Partial<BuildQuestion> = {},
    files = new Map<string, Uint8Array>(['provenance.json', 'evidence.json'].map(file => [file, read(name, file)])),
    artifact: string | null = null,
  ): Promise<BuildVerdict> {
    const { subject } = JSON.parse(fromUtf8(read(name, 'provenance.json')))
    const found = resultFiles(files)
    const digests = new Map(found.digests).set(`artifacts/${subject[0].name}`, artifact ?? subject[0].digest.sha256)
    return await verifyBuild(
      { ...found, digests },
      {
        ...{ nonce: 'any', asOf: Date.UTC(2026, 5, 1), roots: AMD_ROOTS, policy: strictPolicy(), crl: undefined },
        pins: { measurement: 'any', vmpl: 'required', crl: 'any', tcb: 'any' },
        ...{ igvm: 'any', image: 'any' },
        ...changes,
      },
    )
  }

  test.each(['kex', 'ripgrep'])('%s', async name => {
    const verdict = await askVector(name)
    expect(badChecks(verdict)).toEqual([])
    expect([verdict.ok, verdict.isOwn, verdict.simulated, verdict.report?.tpm]).toEqual([
      true,
      false,
      false,
      'vtpm:paravisor-bound',
    ])
    expect(verdict.slsa.build).toBeNull()
    // They were made without a nonce.
    const asked = await askVector(name, { nonce: new Uint8Array(16).fill(1) })
    expect(badChecks(asked)).toEqual(['report/nonce'])
    expect(
      badChecks(await askVector(name, { pins: { measurement: 'required', vmpl: 'required', crl: 'any', tcb: 'any' } })),
    ).toEqual(['pin-measurement'])
  })

  test('nothing of them can be changed', async () => {
    const files = new Map<string, Uint8Array>(
      ['provenance.json', 'evidence.json'].map(file => [file, read('kex', file)]),
    )
    const change = (file: string, from: string, to: string) =>
      askVector(
        'kex',
        {},
        withFile(files, file, bytes => utf8(fromUtf8(bytes).replace(from, to))),
      )
    expect(badChecks(await change('provenance.json', 'cargo build', 'cargo bvild'))).toEqual([
      'report/provenance-digest',
    ])
    expect(badChecks(await change('evidence.json', 'e15c4479', 'e15c4478'))).toEqual(['report/tpm'])
    expect(
      badChecks(await change('evidence.json', '"message":"ff54434780180022', '"message":"ff54434780180023')),
    ).toContain('report/evidence')
    expect(badChecks(await change('evidence.json', '"signature":"1c', '"signature":"1d'))).toEqual(['report/tpm'])
    expect(badChecks(await askVector('kex', {}, files, '0'.repeat(64)))).toEqual(['artifact-digests'])
    // The evidence of another build.
    const mixed = new Map(files).set('evidence.json', read('ripgrep', 'evidence.json'))
    expect(badChecks(await askVector('kex', {}, mixed))).toEqual(['report/provenance-digest'])
  })
})
