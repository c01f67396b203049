// Goal: no verdict is good with a pin missing, unless a flag waives it; the verdict repeats each waiver in words.

import { afterAll, expect, test } from 'bun:test'
import { clearRig, imageDigest, simulatedHost } from '../../../scripts/rigs/gateway/attestation.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { everything, file, startGateway, writeCaFile } from '../../rigs/gateway/attested-servers.ts'
import { checksOf, run, runHere } from '../../rigs/program.ts'

afterAll(clearRig)

const gateway = await startGateway()
afterAll(() => gateway[Symbol.dispose]())
const all = await everything()
const caFile = writeCaFile()
const trust = all.slice(0, 2)
const { operatorKey, measurementOf, evidence } = await simulatedHost()
const measurement = measurementOf(imageDigest)

async function policyArgs(changes: Partial<Policy>): Promise<string[]> {
  return ['--policy', file('pins-policy.json', JSON.stringify(encodePolicy({ ...strictPolicy(), ...changes })))]
}

async function verify(...argv: string[]) {
  const { code, stdout } = await runHere([
    'verify',
    'gateway',
    gateway.url,
    '--ca',
    caFile,
    ...trust,
    ...argv,
    '--json',
  ])
  const document = JSON.parse(stdout)
  return { code, document, failed: checksOf(document, 'FAIL') }
}

function reasonOf(document: { checks: { name: string; reason: string }[] }, name: string): string | undefined {
  return document.checks.find(check => check.name === name)?.reason
}

const WAIVERS = ['--any-measurement', '--any-allowlist', '--any-vmpl', '--any-crl', '--any-tcb']

test('goal: with nothing pinned the verdict is bad, and says what to pin and how to leave it out', async () => {
  const { code, document, failed } = await verify()
  expect([code, document.ok, failed]).toEqual([6, false, ['pin-measurement', 'pin-allowlist']])
  expect(reasonOf(document, 'pin-measurement')).toBe(
    'no measurement is expected: name yours in a --policy, or accept any with --any-measurement',
  )
  expect(reasonOf(document, 'pin-allowlist')).toContain('--any-allowlist')
})

test('goal: every omission is a flag of its own; one flag does not stand for another', async () => {
  const flags = WAIVERS.slice(0, 2)
  for (const flag of flags) {
    const { code, failed } = await verify(...flags.filter(text => text !== flag))
    expect([flag, code, failed]).toEqual([flag, 6, [`pin-${flag.slice('--any-'.length)}`]])
  }
  const { code, document } = await verify(...WAIVERS)
  expect([code, document.ok]).toEqual([0, true])
  for (const flag of WAIVERS) {
    expect(reasonOf(document, `pin-${flag.slice('--any-'.length)}`)).toContain(`: you asked with ${flag}`)
  }
  expect(reasonOf(document, 'pin-measurement')).toBe('accepted any measurement: you asked with --any-measurement')
})

test('goal: the operator key stands in for the allowlist, and one of zeros, which a guest without an ID block has, does not', async () => {
  const named = await verify(...(await policyArgs({ measurements: [measurement], idKeyDigest: operatorKey })))
  expect([named.code, named.failed]).toEqual([0, []])
  const zeros = await verify(...(await policyArgs({ measurements: [measurement], idKeyDigest: new Uint8Array(48) })))
  expect([zeros.code, zeros.failed]).toEqual([6, expect.arrayContaining(['pin-allowlist'])])
})

test('goal: a policy that accepts all four VMPLs pins none', async () => {
  for (const vmpls of ['any', [0, 1, 2, 3]] as const) {
    const policy = await policyArgs({ measurements: [measurement], idKeyDigest: operatorKey, vmpls })
    expect((await verify(...policy)).failed).toEqual(['pin-vmpl'])
    expect((await verify(...policy, '--any-vmpl')).code).toBe(0)
  }
})

test('goal: a flag never loosens what a policy file says', async () => {
  const policy = await policyArgs({ measurements: [new Uint8Array(48).fill(1)], idKeyDigest: operatorKey })
  const { code, failed, document } = await verify(...policy, ...WAIVERS)
  expect([code, failed]).toEqual([6, expect.arrayContaining(['gateway/measurement'])])
  expect(reasonOf(document, 'pin-measurement')).toBe('1 measurement, named in the policy')
})

test('goal: evidence without a revocation list fails, unless that was asked for', async () => {
  const origin = {
    kind: 'available',
    hostData: null,
    platform: 'simulated',
    image: { name: 'gateway', measurement },
    operatorKey,
    evidence: async (reportData: Uint8Array, hostData: Uint8Array) => {
      const { crl: _, ...rest } = await evidence({ measurement, reportData, hostData })
      return rest
    },
  } as const
  using bare = await startGateway({ origin })
  const argv = ['verify', 'gateway', bare.url, '--ca', caFile, ...all, '--json']
  const refused = await runHere(argv)
  expect([refused.code, JSON.parse(refused.stdout).ok]).toEqual([1, false])
  expect((await runHere([...argv, '--any-crl'])).code).toBe(0)
})

test('goal: the floors are checks of every receipt, and only there when they are not waived', async () => {
  const floorsOf = ({ receipts }: { receipts: { checks: { name: string; result: string }[] }[] }) =>
    receipts.map(receipt =>
      receipt.checks.filter(check => check.name.startsWith('tcb-floor-')).map(check => check.result),
    )
  const { document } = await verify(...all.slice(2))
  expect(floorsOf(document)).toEqual(Array.from({ length: 5 }, () => Array.from({ length: 5 }, () => 'PASS')))
  expect(floorsOf((await verify(...all.slice(2), '--any-tcb')).document)).toEqual(Array.from({ length: 5 }, () => []))
})

test('goal: people get a page at most, the verdict first; all checks with --verbose', async () => {
  const line = ['verify', 'gateway', gateway.url, '--ca', caFile]
  for (const argv of [[...line, ...all], line, [...line, ...trust], [...line, ...trust, ...WAIVERS]]) {
    const { code, stdout, stderr } = await runHere(argv)
    const lines = stdout.trimEnd().split('\n')
    // A verdict without a key says how to ask who made it.
    const isQuiet = stderr === '' || /^--key-file FILE shows whether the host minted your key, [^\n]*\n$/.test(stderr)
    expect([argv, lines.length <= 24, isQuiet, stderr]).toEqual([argv, true, true, stderr])
    expect(lines[0]).toStartWith(code === 0 ? 'VERDICT: PASS' : 'VERDICT: FAIL')
    expect(lines.at(-1)).toMatch(/^\d+ checks: \d+ passed, \d+ failed, \d+ not made.*--verbose/)
  }
  const waived = await runHere([...line, ...trust, ...WAIVERS])
  for (const flag of WAIVERS) expect(waived.stdout).toContain(`you asked with ${flag}`)
  const verbose = await run(...line, ...all, '--verbose')
  expect(verbose.stdout.split('\n').length).toBeGreaterThan(40)
})
