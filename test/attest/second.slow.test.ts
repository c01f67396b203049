// Goal: evidence is judged as a second implementation judges it, which was written from AMD's specifications and the
// policy's manual alone: random, validly signed reports with random policies, revocations and faults of certificates,
// and every genuine vector. `scripts/test --all` asks 30,000
// questions, STRONGROOM_SECOND_CASES=1000000 a million.

import { beforeAll, describe, expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { runsAll } from '../../scripts/rigs/all.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { derBlocks } from '../../src/attest/encoding/pem.ts'
import { POLICY_FIELDS } from '../../src/attest/policy/schema.ts'
import { findReport } from '../../src/attest/report/form.ts'
import { caseAuthorities, casesOf, questionsPerReport } from '../rigs/attest/cases/cases.ts'
import { ChainCache, type Compared, compare } from '../rigs/attest/cases/compare.ts'
import { FIELDS, laxDocument, randomPolicy } from '../rigs/attest/cases/policies.ts'
import { randomOf } from '../rigs/attest/cases/random.ts'
import { REAL, vector, vectorsAsOf } from '../rigs/attest/chain-vectors.ts'
import { ruleNames } from '../rigs/attest/second/policy.ts'
import { type ProductName, productOf } from '../rigs/attest/second/report.ts'
import type { Question, SecondRoot } from '../rigs/attest/second/verify.ts'

const caseCount = Number(process.env.STRONGROOM_SECOND_CASES ?? (runsAll ? 30_000 : 6_000))
const seedStart = Number(process.env.STRONGROOM_SECOND_SEED ?? 1)
/** Reports that are signed and asked about at a time: WebCrypto has threads of its own. */
const atATime = 32
/** Chains are kept for so many reports. */
const keepReports = 4096

// Goal: the two share nothing that could be wrong in both.
test('the second implementation imports nothing of ours', () => {
  const folder = resolve(import.meta.dir, '../rigs/attest/second')
  const files = readdirSync(folder)
  expect(files.length).toBeGreaterThan(3)
  for (const file of files) {
    const imports = new Bun.Transpiler({ loader: 'ts' }).scanImports(readFileSync(join(folder, file), 'utf8'))
    const strange = imports.filter(({ path }) => path !== 'node:crypto' && !/^\.\/[a-z]+\.ts$/.test(path))
    expect([file, strange]).toEqual([file, []])
  }
})

// Goal: no field of the policy is left out, by the second implementation or by the random policies.
test('every field of the policy', () => {
  const names = Object.keys(POLICY_FIELDS).filter(name => name !== 'format')
  expect(ruleNames.toSorted()).toEqual(names.toSorted())
  expect(Object.keys(FIELDS).toSorted()).toEqual(names.toSorted())
})

// Goal: not one random case is judged otherwise, and they are neither all good nor all bad.
test(
  `${caseCount} random cases`,
  async () => {
    const authorities = await caseAuthorities(seedStart)
    const seen = new Map<string, number>()
    const count = (what: string) => seen.set(what, (seen.get(what) ?? 0) + 1)
    const differences: string[] = []
    const reports = Math.ceil(caseCount / questionsPerReport)
    let kept = new ChainCache()
    for (let from = 0; from < reports; from += atATime) {
      if (from % keepReports === 0) kept = new ChainCache()
      const seeds = Array.from({ length: Math.min(atATime, reports - from) }, (_, at) => seedStart + from + at)
      const asked = (await Promise.all(seeds.map(seed => casesOf(authorities, seed)))).flat()
      const answers = await Promise.all(asked.map(question => compare(question, kept)))
      for (const [at, { difference, second, isEvidenceGood, isPolicyMet }] of answers.entries()) {
        if (difference !== null) differences.push(`seed ${asked[at]?.seed}: ${difference}`)
        count(isEvidenceGood ? 'good evidence' : `fault: ${second.fault}`)
        if (isEvidenceGood) count(isPolicyMet ? 'good' : 'refused by the policy alone')
        for (const field of second.refused ?? []) count(`refused by ${field}`)
      }
      expect(differences.slice(0, 5)).toEqual([])
    }
    const least = (what: string) => [what, (seen.get(what) ?? 0) > caseCount / 10_000]
    const kinds = ['good', 'refused by the policy alone', ...FAULTS.map(name => `fault: ${name}`)]
    const fields = Object.keys(FIELDS).map(name => `refused by ${name}`)
    expect([...kinds, ...fields].map(least).filter(([, isSeen]) => isSeen === false)).toEqual([])
    expect(seen.get('good') ?? 0).toBeGreaterThan(caseCount / 10)
  },
  caseCount * 10 + 600_000,
)

/** Each way of being bad is met by the random cases. */
const FAULTS = [
  ...[
    'no report',
    'unknown product',
    'no VEK',
    'unreadable chain',
    'no intermediate',
    'a stranger in the place of the ARK',
  ],
  ...['root', 'role', 'rights', 'leaf', 'critical', 'signatures', 'validity', 'revocation', 'product', 'signer'],
  ...['chip', 'tcb', 'signature'],
]

describe('genuine vectors', () => {
  const roots: SecondRoot[] = []
  beforeAll(async () => {
    // From the files as AMD serves them, not from the table in the library.
    for (const product of ['milan', 'genoa', 'turin'] as const) {
      const [ask, ark, asvk] = derBlocks(await vector(`roots/${product}-ask-ark-asvk.pem`), 'CERTIFICATE', product)
      if (ask === undefined || ark === undefined || asvk === undefined) throw new Error(`roots of ${product}`)
      roots.push({ product, ark, ask, asvk })
    }
    const own = AMD_ROOTS.map(({ ark }) => derBlocks(ark, 'CERTIFICATE', 'ARK')[0])
    expect(roots.map(({ ark }) => ark)).toEqual(own as Uint8Array[])
  })

  async function ask(name: string, vek: string, changes: Partial<Question> = {}): Promise<Compared> {
    const [leaf, ...chain] = derBlocks(await vector(vek), 'CERTIFICATE', vek)
    if (leaf === undefined) throw new Error(`no certificate in ${vek}`)
    return await askAbout(findReport(await vector(name)).report, leaf, { chain, ...changes })
  }

  async function askAbout(
    report: Uint8Array,
    vek: Uint8Array,
    changes: Partial<Question>,
    kept = new ChainCache(),
  ): Promise<Compared> {
    const question: Question = {
      report,
      product: null,
      vek,
      chain: [],
      crl: null,
      requireCrl: false,
      roots,
      asOf: Number(vectorsAsOf),
      maskedChipId: 'refuse',
      policy: laxDocument(),
      certificateEntries: null,
      ...changes,
    }
    return await compare(question, kept)
  }

  // Goal: real hardware's reports are good for both.
  test.each([
    ...REAL.map(({ report, vek, product, asOf }) => [`reports/${report}`, `reports/${vek}`, product, asOf] as const),
    [
      'launch-digest/bare-metal-milan.report.bin',
      'launch-digest/bare-metal-milan.vcek.pem',
      'milan',
      vectorsAsOf,
    ] as const,
  ])('%s', async (name, vek, product, asOf) => {
    const { difference, isEvidenceGood, second } = await ask(name, vek, { product, asOf: Number(asOf) })
    expect([difference, isEvidenceGood, second]).toEqual([null, true, { fault: null, refused: [] }])
  })

  // Goal: so are those of Azure, which come inside a paravisor's report.
  test.each(['tpm/paravisor-bound.json', 'builds/kex/evidence.json', 'builds/ripgrep/evidence.json'])(
    '%s',
    async name => {
      const document = JSON.parse(new TextDecoder().decode(await vector(name)))
      const { hcl_report: hcl, vcek } = document.evidence ?? document
      const { report } = findReport(Buffer.from(hcl, 'base64url'))
      const asked = { product: report[0] === 2 ? 'milan' : null } as const
      const { difference, isEvidenceGood } = await askAbout(
        report,
        new Uint8Array(Buffer.from(vcek, 'base64url')),
        asked,
      )
      expect([difference, isEvidenceGood]).toEqual([null, true])
    },
  )

  // Goal: bad ones are bad for both: damaged VCEKs, another chip's, and a VLEK that has expired.
  test.each([
    ['reports/milan-v2.bin', 'reports/bad-vcek-legacy.der', 'milan'],
    ['reports/milan-v2.bin', 'reports/bad-vcek-new.der', 'milan'],
    ['reports/milan-v3-vlek.bin', 'reports/milan-v3-vlek.vlek.der', 'milan'],
    ['reports/wrong-chip.hcl.bin', 'reports/wrong-chip.certs.pem', 'milan'],
  ] as const)('%s with %s', async (name, vek, product) => {
    const { difference, isEvidenceGood } = await ask(name, vek, { product })
    expect([difference, isEvidenceGood]).toEqual([null, false])
  })

  // Goal: a genuine report under random policies, and with any bit flipped, is the same to both.
  test('random policies and flipped bits', async () => {
    const random = randomOf(7)
    for (const { report, vek, product, asOf } of REAL) {
      const bytes = await vector(`reports/${report}`)
      const [leaf, ...chain] = derBlocks(await vector(`reports/${vek}`), 'CERTIFICATE', vek)
      if (leaf === undefined) throw new Error(`no certificate in ${vek}`)
      const kept = new ChainCache()
      for (let i = 0; i < (runsAll ? 150 : 45); i += 1) {
        const changed = i % 3 === 0 ? bytes : bytes.slice()
        if (i % 3 !== 0) changed[random.int(1184)] = random.int(256)
        const named = (productOf(changed, product) ?? product) as ProductName
        const policy = randomPolicy(changed, named, random)
        const asked = { chain, product, asOf: Number(asOf), policy }
        expect([i, (await askAbout(changed, leaf, asked, kept)).difference]).toEqual([i, null])
      }
    }
  })
})
