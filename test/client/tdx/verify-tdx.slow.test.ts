// Goal: `strongroom verify tdx` says PASS of a genuine quote that its policy names, and why it does not of any other.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { fromUtf8, toBase64, toHex } from '../../../src/base/bytes.ts'
import {
  SIMULATED_PCK,
  SIMULATED_REPORT,
  simulateCollateral,
  simulateQuote,
  simulateTdx,
  tcbInfoOf,
  tcbLevel,
} from '../../rigs/attest/tdx/simulated.ts'
import { checksOf, expectUsageError, runHere, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-tdx-'))
afterAll(() => rmSync(dir, { recursive: true }))

const nowMs = Date.parse('2026-01-01T00:00:00Z')
const asOf = ['--as-of', '2026-01-01']
const platform = await simulateTdx(nowMs)
const pck = await platform.pck(SIMULATED_PCK)
const quoteBytes = await simulateQuote(platform, { version: 4, report: SIMULATED_REPORT, pck })
const collateralBytes = await simulateCollateral(platform)
const mrTd = toHex(SIMULATED_REPORT.mrTd)
const root = ['--trust-simulated-root', file('root.pem', toPem(platform.rootDer, 'CERTIFICATE'))]
const quote = file('quote.bin', quoteBytes)
const collateral = ['--collateral', file('collateral.json', collateralBytes)]

function file(name: string, contents: Uint8Array | string): string {
  writeFileSync(join(dir, name), contents)
  return join(dir, name)
}

function policyFile(name: string, changes: object): string {
  return file(name, JSON.stringify({ ...encodeTdxPolicy(strictTdxPolicy()), ...changes }))
}

const measured = { mrTds: [mrTd], rtmr1: [toHex(SIMULATED_REPORT.rtmr1)], rtmr2: [toHex(SIMULATED_REPORT.rtmr2)] }
const policy = ['--policy', policyFile('good.json', measured)]

async function judged(...argv: readonly string[]) {
  const { code, stdout, stderr } = await runHere(['verify', 'tdx', ...argv, ...root, '--json'])
  expect(stderr).toBe('')
  return { code, document: JSON.parse(stdout) }
}

// Goal: the summary names root, measurement and TCB; the document carries the quote and the platform.
test('a genuine quote', async () => {
  const people = await runHere(['verify', 'tdx', quote, ...collateral, ...policy, ...asOf, ...root])
  expect(people.stdout).toContain('VERDICT: PASS')
  expect(people.stdout).toContain('SIMULATED')
  expect(people.stdout).not.toContain("Intel's pinned root")
  expect(people.stdout).toContain(`measurement: ${mrTd}`)
  expect(people.stdout).toContain('TCB: platform UpToDate, module UpToDate, quoting enclave UpToDate')
  const { code, document } = await judged(quote, ...collateral, ...policy, ...asOf)
  expect([code, document.ok, document.failed, document.simulated]).toEqual([0, true, null, true])
  expect(document.tcb).toMatchObject({ status: 'UpToDate', advisories: [] })
  expect(document.platform).toMatchObject({ fmspc: 'b0c06f000000', pce_svn: 11 })
  expect([document.quote.version, document.quote.td_attributes.set]).toEqual([4, ['septVeDisable']])
})

// Goal: a quote may be text, and comes by standard input as well.
test('forms of a quote', async () => {
  for (const [name, text] of [
    ['hex', toHex(quoteBytes)],
    ['0x', `0x${toHex(quoteBytes)}\n`],
    ['0X', `0X${toHex(quoteBytes).toUpperCase()}\n`],
    ['base64', toBase64(quoteBytes).replaceAll(/.{76}/g, '$&\n')],
    ['base64url', toBase64(quoteBytes).replaceAll('+', '-').replaceAll('/', '_')],
  ] as const) {
    expect((await judged(file(name, text), ...collateral, ...policy, ...asOf)).code).toBe(0)
  }
})

// Goal: exit code and word say whether it is forged, old, refused or unreadable.
test('why it is not good', async () => {
  const forged = quoteBytes.with(600, (quoteBytes[600] ?? 0) ^ 1)
  const other = await simulateCollateral(platform, { tcbInfo: tcbInfoOf(nowMs, { fmspc: '000000000001' }) })
  const levels = [tcbLevel({ status: 'UpToDate', pceSvn: 0xffff })]
  const above = await simulateCollateral(platform, { tcbInfo: tcbInfoOf(nowMs, { tcbLevels: levels }) })
  const cases: readonly (readonly [argv: readonly string[], code: number, failed: string, check: string])[] = [
    [[file('forged', forged), ...collateral, ...policy, ...asOf], 1, 'evidence', 'quote-signature'],
    [[quote, ...collateral, ...policy, '--as-of', '2026-06-20'], 1, 'evidence', 'tcb-info-time'],
    [
      [quote, '--collateral', file('other-platform.json', other), ...policy, ...asOf],
      1,
      'evidence',
      'tcb-info-platform',
    ],
    [[quote, '--collateral', file('above.json', above), ...policy, ...asOf], 1, 'evidence', 'tcb-level'],
    [[quote, ...collateral, ...asOf], 6, 'policy', 'pin-measurement'],
    [[quote, ...collateral, ...policy, ...asOf, '--report-data', '00'.repeat(64)], 6, 'policy', 'report-data'],
    [
      [quote, ...collateral, '--policy', policyFile('other.json', { ...measured, mrTds: ['00'.repeat(48)] }), ...asOf],
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

// Goal: MRTD is the firmware, which starts any kernel: whoever names it alone has to say so, register by register.
test('a firmware without a kernel', async () => {
  const named = (changes: object) => ['--policy', policyFile('part.json', { ...measured, ...changes })]
  for (const [changes, registers] of [
    [{ rtmr1: 'any' }, 'rtmr1'],
    [{ rtmr2: 'any' }, 'rtmr2'],
    [{ rtmr1: 'any', rtmr2: 'any' }, 'rtmr1 and rtmr2'],
  ] as const) {
    const { code, document } = await judged(quote, ...collateral, ...named(changes), ...asOf)
    expect([registers, code, checksOf(document, 'FAIL')]).toEqual([registers, 6, ['pin-rtmr']])
    expect(document.checks.find(({ name }: { name: string }) => name === 'pin-rtmr').reason).toContain(registers)
  }
  const open = [quote, ...collateral, ...named({ rtmr1: 'any' }), ...asOf, '--any-rtmr']
  expect((await judged(...open)).code).toBe(0)
  const { stdout } = await runHere(['verify', 'tdx', ...open, ...root])
  expect(stdout).toContain('accepted     any kernel that this firmware starts: you asked with --any-rtmr')
  const wrong = await judged(quote, ...collateral, ...named({ rtmr1: ['00'.repeat(48)] }), ...asOf, '--any-rtmr')
  expect([wrong.code, checksOf(wrong.document, 'FAIL')]).toEqual([6, ['rtmr1']])
})

// Goal: collateral as Intel's service answers it, whole bodies and percent-encoded chains, is the same collateral.
test("answers of Intel's service", async () => {
  const apart = JSON.parse(fromUtf8(collateralBytes))
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
  // The chain may leave the root out; with a simulated one in it, there is nothing to fetch from Intel.
  const chain = [pck.der, platform.authority.der].map(der => toPem(der, 'CERTIFICATE')).join('')
  const rootless = await simulateQuote(platform, { version: 4, report: SIMULATED_REPORT, pck, chain })
  const argv = ['verify', 'tdx', file('rootless.bin', rootless), '--print-collateral-urls']
  const { code, stdout } = await runHere(argv)
  expect([code, stdout.split('\n').length]).toEqual([0, 7])
  expect(stdout).toContain(
    'tcb_info: https://api.trustedservices.intel.com/tdx/certification/v4/tcb?fmspc=b0c06f000000',
  )
  expect(stdout).toContain('pckcrl?ca=platform&encoding=der')
})

// Goal: a simulated platform passes only under its own root, and the verdict says so.
test('SIMULATED', async () => {
  const { code, document } = await judged(quote, ...collateral, ...policy, ...asOf)
  expect([code, document.simulated]).toEqual([0, true])
  const without = await runHere(['verify', 'tdx', quote, ...collateral, ...policy, ...asOf, '--json'])
  expect([without.code, JSON.parse(without.stdout).ok]).toEqual([2, false])
})

// Goal: bad usage names the option and what to do.
test('usage', async () => {
  await expectUsageError(['verify', 'tdx', quote, '--print-collateral-urls'], 'its end is not the trusted root')
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

// Goal: a file of another kind is named as what it is, and a policy's mistakes with value, form and example.
test('other files, and mistakes of a policy', async () => {
  const argv = ['verify', 'tdx', quote, ...collateral, ...asOf, ...root]
  await expectUsageError(['verify', 'tdx', file('bundle.json', '{"quote": ""}')], 'JSON, and no quote')
  await expectUsageError(['verify', 'tdx', join(vectors, 'reports/genoa-v5.bin')], 'an SNP report, and no TDX quote')
  expect((await runHere(['verify', 'tdx', quote])).stderr).toContain("download it from Intel's service with --fetch")
  const snp = file('snp.json', (await runHere(['verify', 'policy-example'])).stdout)
  await expectUsageError(
    [...argv, '--policy', snp],
    'this is a policy for SNP reports, and one for TDX quotes is needed',
  )
  const odd = policyFile('odd.json', { mrTds: ['AB'] })
  await expectUsageError([...argv, '--policy', odd], '"AB" is not 48 bytes in lower-case hexadecimal; for example ')
  const { mrTds, ...rest } = encodeTdxPolicy(strictTdxPolicy())
  const misspelt = file('misspelt.json', JSON.stringify({ ...rest, mrTd: mrTds }))
  await expectUsageError([...argv, '--policy', misspelt], 'is it the unknown field "mrTd"?')
  const commented = file(
    'commented.json',
    `// mine\n${JSON.stringify({ ...encodeTdxPolicy(strictTdxPolicy()), ...measured })}`,
  )
  const passed = await runHere([...argv, '--policy', commented])
  expect(passed.stdout).toContain('VERDICT: PASS')
  expect(passed.stdout).toContain('kernel: RTMR 1 and 2')
  expect(passed.stdout).toContain(
    'report-data: no report data was given, so the quote may be old: give yours with --report-data',
  )
  const late = await runHere([...argv, '--policy', commented, '--as-of', '2031-01-01'])
  expect(late.stdout).toContain('get it again (--fetch), or verify for the time at which you saved it (--as-of)')
  const open = await judged(quote, ...collateral, ...asOf, '--any-measurement')
  const pin = (open.document.checks as { name: string; reason: string }[]).find(
    ({ name }) => name === 'pin-measurement',
  )
  expect(pin?.reason).toEndWith(`; it is ${mrTd}`)
})
