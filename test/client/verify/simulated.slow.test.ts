// Goal: simulated evidence passes only for who trusts its root by name, and every verdict on it says SIMULATED.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type SimulatedPlatform,
  simulatedAsOf,
  simulatedPlatform,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { checksOf, expectUsageError, run, runJson, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-verify-simulated-'))
afterAll(() => rmSync(dir, { recursive: true }))

/** ALIAS_CHECK_COMPLETE, which the floors ask for. */
const fresh = { platformInfo: 0x21n }

let platform: SimulatedPlatform
let argv: string[]
let trust: string[]

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

function pem(...certificates: Uint8Array[]): string {
  return certificates.map(der => toPem(der, 'CERTIFICATE')).join('')
}

beforeAll(async () => {
  platform = await simulatedPlatform('genoa')
  const { ark, ask, asvk } = platform.authority.root
  trust = ['--trust-simulated-root', file('root.pem', pem(asvk, ark, ask))]
  argv = [
    ...['verify', 'report', '--report', file('report.bin', await platform.report({ report: fresh }))],
    ...['--vek', file('vcek.der', platform.vcek), '--as-of', simulatedAsOf.toISOString()],
    ...['--any-measurement', '--any-crl'],
  ]
})

test('goal: with its root the verdict is good and says SIMULATED, in the text and in the document', async () => {
  const [text, { code, document }] = await Promise.all([run(...argv, ...trust), runJson(...argv, ...trust)])
  expect([text.code, code]).toEqual([0, 0])
  expect(text.stdout).toMatch(
    /^VERDICT: PASS SIMULATED, no hardware attests this evidence\nrests on {5}root: SIMULATED root/,
  )
  expect(document).toMatchObject({ ok: true, simulated: true, product: 'genoa' })
})

test('goal: without its root nothing in the evidence makes it pass, its own chain included', async () => {
  const { ark, ask } = platform.authority.root
  const chain = ['--chain', file('chain.pem', pem(ask, ark))]
  const [bare, chained] = await Promise.all([runJson(...argv), runJson(...argv, ...chain)])
  expect([bare.code, checksOf(bare.document, 'FAIL')]).toEqual([1, ['chain-certificates']])
  expect([chained.code, checksOf(chained.document, 'FAIL')]).toEqual([1, expect.arrayContaining(['chain-root'])])
})

test('goal: a root that was trusted makes no bad evidence good, and still says SIMULATED', async () => {
  const { code, stdout } = await run(...argv, ...trust, '--report-data', '00'.repeat(64))
  expect(code).toBe(1)
  expect(stdout).toMatch(/^VERDICT: FAIL SIMULATED, /)
})

test('goal: a root that is trusted beside AMD leaves real evidence what it is', async () => {
  const reports = join(vectors, 'reports')
  const { code, document } = await runJson(
    ...['verify', 'report', '--report', join(reports, 'genoa-v3.bin'), '--vek', join(reports, 'genoa-v3.chain.pem')],
    ...['--as-of', '2026-06-01', ...trust],
    ...['--any-measurement', '--any-crl', '--any-tcb'],
  )
  expect([code, document.simulated]).toEqual([0, false])
})

test('goal: a CRL in force passes, one that revokes or has ended fails, and one that is missing fails unless that is waived', async () => {
  const day = 86_400_000
  const at = (days: number) => new Date(simulatedAsOf.getTime() + days * day)
  const crl = async (name: string, thisUpdate: Date, nextUpdate: Date, serials: string[]) => {
    const revoked = serials.map(serial => ({ serial, at: thisUpdate }))
    const der = await issueSimulatedCrl(platform.authority, { thisUpdate, nextUpdate, revoked })
    return file(name, toPem(der, 'X509 CRL'))
  }
  const [good, ended, revoking] = await Promise.all([
    crl('good.pem', at(-1), at(1), []),
    crl('ended.pem', at(-2), at(-1), []),
    crl('revoking.pem', at(-1), at(1), ['530201']),
  ])
  const answer = async (...more: string[]) => {
    const { code, document } = await runJson(...argv.filter(text => text !== '--any-crl'), ...trust, ...more)
    const checks = document.checks as { name: string; result: string }[]
    return [code, checks.find(check => check.name === 'chain-revocation')?.result]
  }
  expect(await answer('--crl', good)).toEqual([0, 'PASS'])
  for (const more of [[], ['--any-crl']]) {
    expect(await answer('--crl', ended, ...more)).toEqual([1, 'FAIL'])
    expect(await answer('--crl', revoking, ...more)).toEqual([1, 'FAIL'])
  }
  expect(await answer('--any-crl')).toEqual([0, 'NOT CHECKED'])
  expect(await answer()).toEqual([2, 'NOT CHECKED'])
  const said = await run(...argv.filter(text => text !== '--any-crl'), ...trust, '--crl', ended)
  expect(said.stdout).toContain('get it again (--fetch), or verify for the time at which you saved it (--as-of)')
})

test('goal: a CRL of another product is a mistake of the input, and a CRL that the ARK did not sign is not', async () => {
  const times = {
    thisUpdate: new Date(simulatedAsOf.getTime() - 1000),
    nextUpdate: new Date(simulatedAsOf.getTime() + 1000),
  }
  const line = [...argv.filter(text => text !== '--any-crl'), ...trust]
  const milan = await simulatedPlatform('milan')
  const other = file(
    'milan.pem',
    toPem(await issueSimulatedCrl(milan.authority, { ...times, revoked: [] }), 'X509 CRL'),
  )
  await expectUsageError([...line, '--crl', line[3] ?? ''], 'no revocation list')
  expect((await run(...line, '--crl', line[3] ?? '')).stderr).toContain('/vcek/v1/{Milan|Genoa|Turin}/crl')
  await expectUsageError([...line, '--crl', other], 'the revocation list of Milan, and the report is of Genoa')
  expect((await run(...line, '--crl', other)).stderr).toContain('give https://kdsintf.amd.com/vcek/v1/Genoa/crl')
  // A report that is not genuine says of what product it is.
  const report = await platform.report({ report: fresh })
  const altered = file('altered.bin', report.with(0x2a4, (report[0x2a4] ?? 0) ^ 1))
  expect((await runJson(...line.with(3, altered), '--crl', other)).code).toBe(1)
  const der = await issueSimulatedCrl(platform.authority, { ...times, revoked: [] })
  const forged = file('forged.pem', toPem(der.with(-1, (der.at(-1) ?? 0) ^ 1), 'X509 CRL'))
  const { code, document } = await runJson(...line, '--crl', forged)
  expect([code, checksOf(document, 'FAIL')]).toEqual([1, ['chain-revocation']])
})

test('goal: a hidden chip_id is accepted only when that is asked for', async () => {
  const masked = file('masked.bin', await platform.report({ chipId: new Uint8Array(64), report: fresh }))
  const line = [...argv.with(3, masked), ...trust]
  const [refused, accepted] = await Promise.all([runJson(...line), runJson(...line, '--masked-chip-id')])
  expect([refused.code, checksOf(refused.document, 'FAIL')]).toEqual([1, ['vek-chip-id']])
  expect([accepted.code, checksOf(accepted.document, 'NOT CHECKED')]).toEqual([
    0,
    expect.arrayContaining(['vek-chip-id']),
  ])
})

test('goal: a debuggable guest fails without any policy', async () => {
  const debug = file('debug.bin', await platform.report({ report: { ...fresh, policy: 0xb0000n } }))
  const { code, document } = await runJson(...argv.with(3, debug), ...trust)
  expect([code, checksOf(document, 'FAIL')]).toEqual([6, ['guest-policy-debug']])
})

test('goal: a root without an ASVK is enough for a VCEK', async () => {
  const { ark, ask } = platform.authority.root
  const { code, document } = await runJson(...argv, '--trust-simulated-root', file('no-asvk.pem', pem(ask, ark)))
  expect([code, checksOf(document, 'FAIL'), document.simulated]).toEqual([0, [], true])
})

test('goal: what is no whole root is refused with exit code 2', async () => {
  const { ark, ask, asvk } = platform.authority.root
  const roots: [string, string | Uint8Array, string][] = [
    ['no-ark.pem', pem(ask, asvk), 'not exactly one ARK'],
    ['two-asvks.pem', pem(ask, ark, asvk, asvk), 'more than one ASVK'],
    ['no-ask.pem', pem(ark, asvk), 'not exactly one ASK'],
    ['two.pem', pem(ark, ark, ask, asvk), 'not exactly one ARK'],
    ['empty.pem', '', 'no CERTIFICATE in it'],
    ['noise.pem', Uint8Array.of(1, 2, 3), 'neither DER nor PEM'],
  ]
  for (const [name, content, message] of roots) {
    await expectUsageError([...argv, '--trust-simulated-root', file(name, content)], message)
  }
})
