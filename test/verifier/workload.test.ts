// Goal: workload.json is bound to the receipts, its upstreams and settings pass only as the relying party named them,
// and the verdict says where prompts go.

import { describe, expect, test } from 'bun:test'
import { workloadOf } from '../../scripts/rigs/enclave/workload.ts'
import type { StatementOf } from '../../src/attest/receipt/statement.ts'
import { present } from '../../src/base/assert.ts'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { encodeAllowlist } from '../../src/contract/vm/allowlist.ts'
import type { Exposure } from '../../src/contract/vm/exposure.ts'
import {
  type GatewaySettings,
  type WorkloadDocument,
  type WorkloadUpstream,
  workloadText,
} from '../../src/contract/vm/workload.ts'
import { attestationWords, readWorkload, workloadChecks, workloadIn } from '../../src/verifier/workload.ts'

const sha256 = (bytes: string | Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
const keptNone = { retentionMs: 0, countMax: 0, bytesMax: 0, bytesPerKeyMax: 0 }

function documentOf(upstreams: readonly Partial<WorkloadUpstream>[], gateway: Partial<GatewaySettings> = {}) {
  return workloadOf({ controlKey: 'A'.repeat(43), upstreams, gateway: { keptResponses: keptNone, ...gateway } })
}
type WorkloadExpectations = {
  readonly outside?: readonly string[]
  readonly workloads?: readonly Uint8Array[] | 'any'
  readonly allow?: readonly Exposure[]
  readonly statement?: Partial<StatementOf<'workload'>> | null
}
function judge(
  document: WorkloadDocument | null,
  { outside = [], workloads = 'any', allow = [], statement = {} }: WorkloadExpectations,
) {
  const bytes = document === null ? null : utf8(workloadText(document))
  const stated = {
    configurationDigest: bytes === null ? null : sha256(bytes),
    allowlistDigest: document === null ? new Uint8Array(32) : sha256(encodeAllowlist(document.allowlist)),
    ...statement,
  } as StatementOf<'workload'>
  const checks = workloadChecks(statement === null ? null : stated, readWorkload(bytes), { outside, workloads, allow })
  const of = (name: string) =>
    present(
      checks.find(check => check.name === name),
      name,
    )
  return { checks, of, outcomes: checks.map(({ name, outcome }) => `${name} ${outcome}`) }
}

describe('the document', () => {
  test('goal: only an answer of 200 is one', () => {
    const body = utf8('{}')
    expect(workloadIn({ status: 200, body })).toBe(body)
    for (const status of [0, 201, 204, 400, 404, 500]) expect(workloadIn({ status, body })).toBeNull()
  })

  test('goal: it is read with the digests of its bytes and of its allowlist; none is none', () => {
    const document = documentOf([])
    const text = workloadText(document)
    expect(readWorkload(utf8(text))).toEqual({
      document,
      digest: sha256(text),
      allowlist: { allowlist: document.allowlist, digest: sha256(encodeAllowlist(document.allowlist)) },
    })
    expect(readWorkload(null)).toBeNull()
  })

  test('goal: what is too large, too deep, no JSON or of another form is refused in words', () => {
    const text = workloadText(documentOf([]))
    const fill = (length: number) => utf8(text + ' '.repeat(length - utf8(text).length))
    expect(readWorkload(fill(1_048_576))).toMatchObject({ document: { format: 'strongroom/workload/v1' } })
    const problemOf = (bytes: Uint8Array) => {
      const read = readWorkload(bytes)
      return read?.document === null ? read.reason : 'it was read'
    }
    expect(problemOf(fill(1_048_577))).toBe('workload.json: 1048577 bytes are too many')
    const nested = (depth: number) => utf8('['.repeat(depth) + ']'.repeat(depth))
    expect(problemOf(nested(11))).toContain('nested deeper than 10 levels')
    expect(problemOf(nested(10))).not.toContain('nested')
    expect(problemOf(utf8('x'))).toContain('workload.json: ')
    expect(problemOf(utf8(text.replace('workload/v1', 'workload/v2')))).toContain('workload.json: /format')
  })
})

describe('what the receipts name', () => {
  const [other, digest] = [new Uint8Array(32).fill(9), sha256(workloadText(documentOf([])))]
  const others = ['workload-upstreams pass', 'workload-settings pass']

  test('goal: the document and its allowlist are those of the receipt', () => {
    const good = judge(documentOf([]), {})
    expect(good.outcomes).toEqual(['workload pass', 'workload-allowlist pass', ...others])
    expect(good.of('workload').reason).toBe(toHex(digest))
    for (const configurationDigest of [other, null]) {
      const bad = judge(documentOf([]), { statement: { configurationDigest } })
      expect(bad.outcomes).toEqual(['workload fail', 'workload-allowlist pass', ...others])
      expect(bad.of('workload').reason).toBe('the receipt names another workload.json')
    }
    expect(judge(documentOf([]), { statement: { allowlistDigest: other } }).outcomes).toEqual([
      ...['workload pass', 'workload-allowlist fail'],
      ...others,
    ])
  })

  test('goal: a receipt that cannot be read leaves it unchecked, which no verdict passes', () => {
    expect(judge(documentOf([]), { statement: null, workloads: [digest] }).checks).toEqual([
      {
        name: 'workload',
        outcome: 'not-checked',
        reason: "the gateway's receipt cannot be read",
        required: true,
      },
    ])
    const unread = readWorkload(utf8('x'))
    const found = workloadChecks(null, unread, { outside: [], workloads: 'any', allow: [] })
    expect(found.map(({ name, outcome }) => `${name} ${outcome}`)).toEqual(['workload fail'])
  })

  test('goal: a document that is pinned is one of those that are expected; none at all fails', () => {
    const pinned = judge(documentOf([]), { workloads: [other, digest] })
    expect(pinned.of('workload-pinned')).toMatchObject({ outcome: 'pass', reason: toHex(digest) })
    expect(judge(documentOf([]), { workloads: [other] }).of('workload-pinned')).toMatchObject({
      outcome: 'fail',
      reason: `HOST_DATA is ${toHex(digest)}, which is none of those that you expect`,
    })
    expect(judge(documentOf([]), { workloads: [] }).of('workload-pinned').outcome).toBe('fail')
    expect(judge(null, { workloads: [digest] }).outcomes).toEqual(['workload-pinned fail'])
    expect(judge(null, {}).checks).toEqual([])
  })
})

test('goal: each setting that shows more, or keeps content, passes by its own name alone', () => {
  const traces = { sampleRatio: 0, followParent: false, forwardParent: false }
  const cases: readonly (readonly [Partial<GatewaySettings>, Exposure, string])[] = [
    [{ usageLabels: true }, 'usage-labels', 'the host gets `user` and `metadata` of each request'],
    [{ padStreams: 'off' }, 'no-padding', 'packets of streams show the length of each token'],
    [
      { keptResponses: { ...keptNone, retentionMs: 1 } },
      'kept-responses',
      'the gateway keeps requests and responses for later requests of the key',
    ],
    [{ traces }, 'traces', 'the host gets times, finish reasons, counts and codes of each request'],
  ]
  for (const [settings, name, words] of cases) {
    const document = documentOf([], settings)
    expect(judge(document, {}).of('workload-settings')).toMatchObject({
      outcome: 'fail',
      reason: `${name}: ${words}; allow it by allow: ["${name}"]`,
    })
    const rest = cases.map(([, other]) => other).filter(other => other !== name)
    expect(judge(document, { allow: rest }).of('workload-settings').outcome).toBe('fail')
    expect(judge(document, { allow: [name] }).of('workload-settings')).toMatchObject({
      outcome: 'pass',
      reason: `${name}: ${words}`,
    })
  }
  const two = documentOf([], { usageLabels: true, padStreams: 'off' })
  expect(judge(two, { allow: ['no-padding'] }).of('workload-settings').reason).toEndWith(
    'each token; allow it by allow: ["usage-labels"]',
  )
})

// Goal: prompts leave the measured VM for named upstreams alone, and the line says what vouches for each.
describe('upstreams', () => {
  const of = (upstreams: readonly Partial<WorkloadUpstream>[], outside: readonly string[] = []) => {
    const { outcome, reason } = judge(documentOf(upstreams), { outside }).of('workload-upstreams')
    return [outcome, reason]
  }
  const far = { name: 'far', url: 'https://far.example/v1', models: ['m', 'n'] }
  const line = 'OUTSIDE: m, n to far at https://far.example/v1 (public authorities)'
  // The rig's worker has model `w`, and a file of these bytes.
  const inside = (reason: string | undefined) => /inside the measured VM: w, file [0-9a-f]{64}$/.exec(`${reason}`)?.[0]

  test('goal: one that is not named fails, and the advice names it with its origin', () => {
    const [, alone] = of([])
    expect([of([])[0], inside(alone)]).toEqual(['pass', `${alone}`])
    expect(of([far])).toEqual([
      'fail',
      `${line}; ${alone}; not attested: far: allow it by outside: ["far=https://far.example"]`,
    ])
    for (const entry of ['far', 'far=https://far.example'])
      expect(of([far], [entry])).toEqual(['pass', `${line}; ${alone}`])
    for (const entry of ['fa', 'far=https://other.example']) expect(of([far], [entry])[0]).toBe('fail')
  })

  test('goal: evidence of its own is said, and is not enough', () => {
    const attestation = { kind: 'snp', policy: '{}', path: '/a', intervalMs: 1 } as const
    const by = `by snp under policy ${toHex(sha256('{}'))}`
    expect(attestationWords(attestation)).toBe(by)
    expect(attestationWords({ ...attestation, simulatedRoot: 'PEM' })).toBe(by.replace('snp', 'snp, or SIMULATED'))
    const attested = { ...far, attestation }
    const [outcome, reason] = of([attested, { ...far, name: 'two' }])
    expect([outcome, reason]).toEqual([
      'fail',
      expect.stringContaining(
        '; not attested: two, only the gateway\'s policy covers far: allow it by outside: ["far=https://far.example"], allow it by outside: ["two=https://far.example"]',
      ),
    ])
    expect(reason).toStartWith(
      `OUTSIDE, attested ${by}: m, n to far at https://far.example/v1 (public authorities); OUTSIDE: `,
    )
    expect(of([attested])[1]).toEndWith(
      `; only the gateway's policy covers far: allow it by outside: ["far=https://far.example"]`,
    )
    expect(of([attested])[1]).not.toContain('not attested')
  })

  test('goal: what vouches for the connection to it', () => {
    const [first, next] = ['ab'.repeat(32), 'cd'.repeat(32)]
    const trust = (changes: Partial<WorkloadUpstream>) => {
      const [, reason] = of([{ ...far, models: ['m'], ...changes }], ['far'])
      return /v1 \(([^)]*)\); inside/.exec(`${reason}`)?.[1]
    }
    expect(trust({})).toBe('public authorities')
    expect(trust({ ca: 'PEM' })).toBe('an authority of its own')
    expect(trust({ ca: 'PEM', spkiSha256: first })).toBe(`key ${first}`)
    expect(trust({ spkiSha256: first, spkiSha256Next: next })).toBe(`key ${first} or ${next}`)
    expect(trust({ url: 'http://far.example/v1', spkiSha256: first })).toBe('no TLS')
  })

  test('goal: a name is plain and at most 64 characters, or is quoted, without spaces, and cut', () => {
    const named = (model: string) => {
      const [, reason] = of([{ ...far, models: [model] }], ['far'])
      return `${reason}`.slice('OUTSIDE: '.length, `${reason}`.indexOf(' to far at'))
    }
    expect(named('m'.repeat(64))).toBe('m'.repeat(64))
    expect(named('m'.repeat(65))).toBe(`"${'m'.repeat(64)}"`)
    expect(named('!~')).toBe('!~')
    expect(named('a b')).toBe('"a\\u0020b"')
    expect(named('a\nb')).toBe('"a\\nb"')
    expect(named('é')).toBe('"é"')
  })

  test('goal: without a worker and upstreams there are no models', () => {
    expect(judge({ ...documentOf([]), worker: null }, {}).of('workload-upstreams')).toMatchObject({
      outcome: 'pass',
      reason: 'no models',
    })
  })
})
