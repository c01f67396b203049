import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildQuestion, type ResultChanges, resultFiles, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { countingRandom, operatorKey, simulatedSource } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { familyReportData } from '../../../src/attest/provenance/evidence.ts'
import { fileSha256, prettyJson } from '../../../src/attest/provenance/json.ts'
import { makeHybridKeys } from '../../../src/attest/receipt/hybrid-keys.ts'
import { present } from '../../../src/base/assert.ts'
import { fromUtf8, toBase64, utf8 } from '../../../src/base/bytes.ts'
import { type BuildVerdict, verifyBuild } from '../../../src/verifier/build/build.ts'
import type { AskedRequest, BuildQuestion } from '../../../src/verifier/build/question.ts'
import { type BuildCase, badChecks, flipped, openBuildCase, withFile, withJson } from '../../rigs/build/case.ts'

let item: BuildCase
beforeAll(async () => {
  item = await openBuildCase()
})
afterAll(() => item.close())

// Goal: whoever has good receipts, or even a VM's keys, cannot put together what does not belong together.
describe('receipts', () => {
  const without = (name: string) =>
    withJson(item.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom[name] = null
    })

  test('one or both dropped', async () => {
    expect((await item.ask(without('dispatch'))).firstBroken).toBe('dispatch/evidence')
    expect((await item.ask(without('completion'))).firstBroken).toBe('completion/evidence')
    const neither = withJson(item.good.files, 'evidence.json', (value: Record<string, unknown>) =>
      Reflect.deleteProperty(value, 'strongroom'),
    )
    const verdict = await item.ask(neither)
    expect(verdict.firstBroken).toBe('receipts')
    expect(verdict.ok).toBe(false)
    const swapped = withJson(item.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      const { dispatch, completion } = value.strongroom
      value.strongroom = { dispatch: completion, completion: dispatch }
    })
    expect(badChecks(await item.ask(swapped))).toContain('dispatch/kind')
  })

  test('the report of the family dropped', async () => {
    const gone = withJson(item.good.files, 'evidence.json', (value: { evidence: unknown }) => {
      value.evidence = null
    })
    expect(badChecks(await item.ask(gone))).toEqual(['report/evidence'])
  })

  test('another nonce', async () => {
    const nonce = flipped(item.good.nonce, 3)
    const verdict = await item.ask(item.good.files, { nonce })
    expect(verdict.firstBroken).toBe('dispatch/nonce')
    expect(badChecks(verdict)).toEqual(['dispatch/nonce', 'completion/nonce', 'report/nonce', 'slsa-statement'])
    expect(badChecks(await item.ask(item.good.files, { nonce: item.good.nonce.subarray(0, 15) }))).toContain(
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
    const of = await sampleResult({ measurement: item.measurement, ...changes })
    const verdict = await item.ask(of.files)
    expect(verdict.ok).toBe(false)
    expect(verdict.firstBroken).toBe(line)
  })

  test('the receipt of another VM', async () => {
    // Goal: a dispatch by other keys, good by itself, is not of this build.
    const keys = makeHybridKeys(countingRandom(200))
    const of = await sampleResult({ measurement: item.measurement, keys })
    const mixed = withJson(item.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom.dispatch = of.dispatch
    })
    expect(badChecks(await item.ask(mixed))).toEqual(['completion/chained', 'one-vm'])
  })

  test('envelope and bundle by other keys', async () => {
    // Goal: their signatures count only under the keys for which the hardware vouches.
    const keys = makeHybridKeys(countingRandom(201))
    const of = await sampleResult({ measurement: item.measurement, keys })
    const files = new Map(of.files)
    const mixed = withJson(files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom = { dispatch: item.good.dispatch, completion: item.good.completion }
    })
    expect(badChecks(await item.ask(mixed))).toContain('slsa-envelope')
  })

  test('another measurement, another root, no pin', async () => {
    const elsewhere = await sampleResult({ measurement: new Uint8Array(48).fill(1) })
    expect((await item.ask(elsewhere.files)).firstBroken).toBe('launch-measurement')
    const base = await buildQuestion(item.good.nonce)
    const pinned = await item.ask(elsewhere.files, { policy: { ...base.policy, measurements: [item.measurement] } })
    expect(pinned.firstBroken).toBe('dispatch/measurement')
    expect((await item.ask(item.good.files, { roots: AMD_ROOTS })).firstBroken).toBe('dispatch/evidence')
    const unpinned = await item.ask(item.good.files, { igvm: 'any', image: 'any' })
    expect(badChecks(unpinned)).toEqual(['pin-measurement'])
  })

  test('what is no receipt and no result', async () => {
    for (const junk of [1, 'x', [], {}, { evidence: 1 }, { evidence: {} }]) {
      const files = withJson(item.good.files, 'evidence.json', (value: { strongroom: Record<string, unknown> }) => {
        value.strongroom.completion = junk
      })
      expect((await item.ask(files)).ok).toBe(false)
    }
    expect((await item.ask(new Map())).ok).toBe(false)
    expect((await item.ask(item.good.files, { igvm: Uint8Array.of(1, 2, 3) })).ok).toBe(false)
  })
})

// Goal: kettle's own, made on Azure: read, and judged by the same rules. Their artifacts are not here, but for their
// digests.
describe('real results of another builder', () => {
  // Goal: kettle's own, made on Azure: read, and judged by the same rules. Their artifacts are not here, but for their
  // digests.
  const builds = join(import.meta.dir, '../../vectors/builds')
  const read = (name: string, file: string) => new Uint8Array(readFileSync(join(builds, name, file)))

  const anySource: AskedRequest = {
    source: 'any',
    sourceName: 'any',
    projectDir: null,
    toolchain: null,
    reproduce: false,
    options: null,
    fetchCaSha256: null,
    cratesMirror: null,
    lfsPointers: 'none',
    compiler: 'pinned',
  }

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
        nonce: 'any',
        asOf: Date.UTC(2026, 5, 1),
        roots: AMD_ROOTS,
        policy: strictPolicy(),
        crl: undefined,
        pins: { measurement: 'any', vmpl: 'required', crl: 'any', tcb: 'any' },
        igvm: 'any',
        image: 'any',
        request: anySource,
        ownImage: false,
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
    // Checks behind the summary are there by name, though there is no receipt.
    for (const name of ['chain-root', 'vmpl']) {
      expect(verdict.report?.details.find(check => check.name === name)?.outcome).toBe('pass')
    }
    // They were made without a nonce.
    const asked = await askVector(name, { nonce: new Uint8Array(16).fill(1) })
    expect(badChecks(asked)).toEqual(['report/nonce'])
    expect(
      badChecks(await askVector(name, { pins: { measurement: 'required', vmpl: 'required', crl: 'any', tcb: 'any' } })),
    ).toEqual(['pin-measurement'])
  })

  test('their firmware is below the floors, which alone is what fails then', async () => {
    const pins = { measurement: 'any', vmpl: 'required', crl: 'any', tcb: 'required' } as const
    expect(badChecks(await askVector('kex', { pins }))).toEqual(['report/tcb-floor'])
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

// Goal: a result of another builder, on hardware of its own: its report alone vouches, and what it does unlike the
// specification is said.
describe('a result with a report and no receipts', () => {
  const nonce = new Uint8Array(16).fill(7)
  const artifact = utf8('an artifact')

  async function foreign(
    change: (value: Record<string, unknown>) => void = () => {},
  ): Promise<Map<string, Uint8Array>> {
    const { predicate, ...rest } = JSON.parse(fromUtf8(present(item.good.files.get('provenance.json'), 'provenance')))
    const { buildDefinition: definition, runDetails } = predicate
    const provenance = prettyJson({
      _type: rest._type,
      predicate: {
        buildDefinition: {
          ...definition,
          buildType: 'https://other.example/cargo@v1',
          resolvedDependencies: [{ digest: { sha256: 'X2Vv6VVM3Kjm=' }, name: 'a', uri: 'pkg:nix-fetch/a' }],
        },
        runDetails: { ...runDetails, byproducts: [{ digest: { sha256: '00' }, name: 'input_merkle_root' }] },
      },
      predicateType: rest.predicateType,
      subject: [{ digest: { sha256: fileSha256(artifact) }, name: 'tool' }],
    })
    const reportData = present(familyReportData(sha256(provenance), nonce), 'report data')
    const source = simulatedSource({
      measurement: item.measurement,
      reportData,
      report: { idKeyDigest: operatorKey, platformInfo: 0x21n },
    })
    const { report, vek } = await source(reportData)
    const evidence: Record<string, unknown> = {
      platform: 'simulated',
      evidence: { attestation_report: toBase64(report), cert_chain: { vcek: toBase64(vek), ask: null, ark: null } },
    }
    change(evidence)
    return new Map([
      ['provenance.json', provenance],
      ['evidence.json', prettyJson(evidence)],
      ['artifacts/tool', artifact],
    ])
  }
  const pins = { measurement: 'required', vmpl: 'required', crl: 'any', tcb: 'required' } as const

  test('passes, with remarks', async () => {
    const verdict = await item.ask(await foreign(), { nonce, pins })
    expect(badChecks(verdict)).toEqual([])
    expect([verdict.ok, verdict.isOwn, verdict.report?.tpm]).toEqual([true, false, null])
    const open = verdict.checks.filter(check => check.outcome === 'not-checked').map(check => check.name)
    expect(open).toEqual(expect.arrayContaining(['receipts', 'dependency-digests', 'byproduct-digests']))
  })

  test('another nonce, a strange field, an artifact beside artifacts/, one that nobody named', async () => {
    const other = await item.ask(await foreign(), { nonce: new Uint8Array(16), pins })
    expect(badChecks(other)).toEqual(['report/nonce'])
    const strange = await foreign(value => {
      Object.assign(value.evidence as object, { extra: 1 })
    })
    expect((await item.ask(strange, { nonce, pins })).firstBroken).toBe('evidence-format')
    const beside = (await foreign()).set('tool', artifact)
    expect(badChecks(await item.ask(beside, { nonce, pins }))).toEqual([])
    beside.set('tool', utf8('another'))
    expect(badChecks(await item.ask(beside, { nonce, pins }))).toEqual(['artifact-digests'])
    const extra = (await foreign()).set('artifacts/extra', artifact)
    expect(badChecks(await item.ask(extra, { nonce, pins }))).toEqual(['artifact-list'])
  })

  test('simulated evidence that says it is not', async () => {
    const files = await foreign(value => {
      value.platform = 'snp'
    })
    expect(badChecks(await item.ask(files, { nonce, pins }))).toEqual(['report/platform'])
    const tdx = await foreign(value => {
      value.platform = 'tdx'
    })
    expect((await item.ask(tdx, { nonce, pins })).firstBroken).toBe('evidence-format')
  })
})
