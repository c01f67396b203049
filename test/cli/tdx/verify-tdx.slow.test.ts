// Goal: `strongroom verify tdx` says PASS of a genuine quote that its policy names, and why it does not of any other.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../src/attest/tdx/policy.ts'
import { decodeQuote } from '../../../src/attest/tdx/quote.ts'
import { toBase64, toHex } from '../../../src/base/bytes.ts'
import {
  SIMULATED_PCK,
  SIMULATED_REPORT,
  simulateCollateral,
  simulateQuote,
  simulateTdx,
} from '../../rigs/attest/tdx/simulated.ts'
import { checksOf, expectUsageError, runHere, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-tdx-'))
afterAll(() => rmSync(dir, { recursive: true }))

const vector = (name: string) => join(vectors, 'tdx', name)
const quote = vector('v4.quote')
const mrTd = toHex(decodeQuote(new Uint8Array(readFileSync(quote))).report.mrTd)
const asOf = ['--as-of', '2025-06-20']
const collateral = ['--collateral', vector('v4.collateral.json')]

function file(name: string, contents: Uint8Array | string): string {
  writeFileSync(join(dir, name), contents)
  return join(dir, name)
}

function policyFile(name: string, changes: object): string {
  return file(name, JSON.stringify({ ...encodeTdxPolicy(strictTdxPolicy()), ...changes }))
}

let policy: readonly string[]
beforeAll(() => {
  policy = ['--policy', policyFile('good.json', { mrTds: [mrTd] })]
})

async function judged(...argv: readonly string[]) {
  const { code, stdout, stderr } = await runHere(['verify', 'tdx', ...argv, '--json'])
  expect(stderr).toBe('')
  return { code, document: JSON.parse(stdout) }
}

// Goal: the summary names root, measurement and TCB; the document carries the quote and the platform.
test('a genuine quote', async () => {
  const people = await runHere(['verify', 'tdx', quote, ...collateral, ...policy, ...asOf])
  expect(people.stdout).toContain('VERDICT: PASS')
  expect(people.stdout).toContain("root: Intel's pinned root")
  expect(people.stdout).toContain(`measurement: ${mrTd}`)
  expect(people.stdout).toContain('TCB: platform UpToDate, module UpToDate, quoting enclave UpToDate')
  const { code, document } = await judged(quote, ...collateral, ...policy, ...asOf)
  expect([code, document.ok, document.failed, document.simulated]).toEqual([0, true, null, false])
  expect(document.tcb).toMatchObject({ status: 'UpToDate', advisories: [] })
  expect(document.platform).toMatchObject({ fmspc: 'b0c06f000000', pce_svn: 11 })
  expect([document.quote.version, document.quote.td_attributes.set]).toEqual([4, ['septVeDisable']])
})

// Goal: a quote may be text, and comes by standard input as well.
test('forms of a quote', async () => {
  const bytes = new Uint8Array(readFileSync(quote))
  for (const [name, text] of [
    ['hex', toHex(bytes)],
    ['0x', `0x${toHex(bytes)}\n`],
    ['base64', toBase64(bytes).replaceAll(/.{76}/g, '$&\n')],
  ] as const) {
    expect((await judged(file(name, text), ...collateral, ...policy, ...asOf)).code).toBe(0)
  }
})

// Goal: exit code and word say whether it is forged, old, refused or unreadable.
test('why it is not good', async () => {
  const forged = new Uint8Array(readFileSync(quote))
  forged[600] = (forged[600] ?? 0) ^ 1
  const cases: readonly (readonly [argv: readonly string[], code: number, failed: string, check: string])[] = [
    [[file('forged', forged), ...collateral, ...policy, ...asOf], 1, 'evidence', 'quote-signature'],
    [[quote, ...collateral, ...policy, '--as-of', '2026-06-20'], 1, 'evidence', 'tcb-info-time'],
    [[quote, '--collateral', vector('v5.collateral.json'), ...policy, ...asOf], 1, 'evidence', 'tcb-info-platform'],
    [
      [vector('v5.quote'), '--collateral', vector('v5.collateral.json'), ...policy, '--as-of', '2026-02-20'],
      1,
      'evidence',
      'tcb-level',
    ],
    [[quote, ...collateral, ...asOf], 6, 'policy', 'pin-measurement'],
    [[quote, ...collateral, ...policy, ...asOf, '--report-data', '00'.repeat(64)], 6, 'policy', 'report-data'],
    [
      [quote, ...collateral, '--policy', policyFile('other.json', { mrTds: ['00'.repeat(48)] }), ...asOf],
      6,
      'policy',
      'mr-td',
    ],
    [[quote, '--collateral', file('empty', '{}'), ...policy, ...asOf], 2, 'input', 'collateral-form'],
  ]
  for (const [argv, code, failed, check] of cases) {
    const answer = await judged(...argv)
    expect([argv, answer.code, answer.document.failed]).toEqual([argv, code, failed])
    expect([argv, checksOf(answer.document, 'FAIL')]).toEqual([argv, expect.arrayContaining([check])])
  }
  const any = await judged(quote, ...collateral, ...asOf, '--any-measurement')
  expect([any.code, any.document.ok]).toEqual([0, true])
})

// Goal: collateral as Intel's service answers it, whole bodies and percent-encoded chains, is the same collateral.
test("answers of Intel's service", async () => {
  const apart = JSON.parse(readFileSync(vector('v4.collateral.json'), 'utf8'))
  const whole = {
    tcb_info: `{"tcbInfo":${apart.tcb_info},"signature":"${apart.tcb_info_signature}"}`,
    tcb_info_issuer_chain: encodeURIComponent(apart.tcb_info_issuer_chain),
    qe_identity: `{"enclaveIdentity":${apart.qe_identity},"signature":"${apart.qe_identity_signature}"}\n`,
    qe_identity_issuer_chain: encodeURIComponent(apart.qe_identity_issuer_chain),
    pck_crl: apart.pck_crl,
    root_ca_crl: apart.root_ca_crl,
  }
  const path = file('whole.json', JSON.stringify(whole))
  expect((await judged(quote, '--collateral', path, ...policy, ...asOf)).code).toBe(0)
  for (const [name, changes] of Object.entries({
    unsigned: { tcb_info: apart.tcb_info },
    swapped: { tcb_info: whole.qe_identity },
    twice: { pck_crl: 'zz' },
    encoding: { tcb_info_issuer_chain: '-----BEGIN%20%' },
  })) {
    const other = file(`${name}.json`, JSON.stringify({ ...whole, ...changes }))
    const { code, document } = await judged(quote, '--collateral', other, ...policy, ...asOf)
    expect([name, code, checksOf(document, 'FAIL')]).toEqual([name, 2, ['collateral-form']])
  }
})

// Goal: what to fetch is printed by member, for the platform of the quote, and nothing is asked for.
test('--print-collateral-urls', async () => {
  const { code, stdout } = await runHere(['verify', 'tdx', quote, '--print-collateral-urls'])
  expect([code, stdout.split('\n').length]).toEqual([0, 7])
  expect(stdout).toContain(
    'tcb_info: https://api.trustedservices.intel.com/tdx/certification/v4/tcb?fmspc=b0c06f000000',
  )
  expect(stdout).toContain('pckcrl?ca=platform&encoding=der')
})

// Goal: a simulated platform passes only under its own root, and the verdict says so.
test('SIMULATED', async () => {
  const nowMs = Date.parse('2026-01-01T00:00:00Z')
  const platform = await simulateTdx(nowMs)
  const pck = await platform.pck(SIMULATED_PCK)
  const path = file('simulated.quote', await simulateQuote(platform, { version: 4, report: SIMULATED_REPORT, pck }))
  const own = ['--collateral', file('simulated.json', await simulateCollateral(platform))]
  const root = ['--trust-simulated-root', file('root.pem', toPem(platform.rootDer, 'CERTIFICATE'))]
  const argv = [path, ...own, '--any-measurement', '--as-of', '2026-01-01']
  const { code, document } = await judged(...argv, ...root)
  expect([code, document.simulated]).toEqual([0, true])
  expect((await runHere(['verify', 'tdx', ...argv, ...root])).stdout).toContain('SIMULATED')
  const without = await judged(...argv)
  expect([without.code, without.document.ok]).toEqual([2, false])
})

// Goal: bad usage names the option and what to do.
test('usage', async () => {
  await expectUsageError(['verify', 'tdx', quote], 'required option --collateral is missing')
  await expectUsageError(['verify', 'tdx', file('none', 'none'), ...collateral], 'TDX quote')
  const named = policyFile('named.json', { reportData: '00'.repeat(64) })
  const twice = ['verify', 'tdx', quote, ...collateral, '--policy', named, '--report-data', '00'.repeat(64)]
  await expectUsageError(twice, 'names reportData, too')
  const bad = file('bad.json', '{"format":"strongroom/tdx-policy/v1"}')
  await expectUsageError(
    ['verify', 'tdx', quote, ...collateral, '--policy', bad],
    'policy.quoteVersions: it is missing',
  )
  await expectUsageError(['verify', 'policy-example', '--tdx', '--image', 'x'], '--tdx: images of this project')
})

// Goal: the example is a policy that the command takes.
test('policy-example --tdx', async () => {
  const { code, stdout } = await runHere(['verify', 'policy-example', '--tdx'])
  expect(code).toBe(0)
  expect(
    (await judged(quote, ...collateral, '--policy', file('example.json', stdout), ...asOf, '--any-measurement')).code,
  ).toBe(0)
})
