// Goal: a configuration of evidence that would accept anybody, or says nothing, is refused by its field.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encodePolicy } from '../../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../../src/attest/policy/policy.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../../src/attest/tdx/encode-policy.ts'
import { policyDigest } from '../../../../src/inference/upstream/attested/attestation.ts'
import { loadAttestation } from '../../../../src/inference/upstream/attested/load-attestation.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-attestation-'))
afterAll(() => rmSync(dir, { recursive: true }))

function file(name: string, text: string): string {
  writeFileSync(join(dir, name), text)
  return join(dir, name)
}

const digests = ['00'.repeat(48)]
const tdx = { ...encodeTdxPolicy(strictTdxPolicy()), mrTds: digests, rtmr1: digests, rtmr2: digests }
const snp = { ...encodePolicy(strictPolicy()), measurements: ['00'.repeat(48)] }
const tdxFile = file('tdx.json', JSON.stringify(tdx))
const snpFile = file('snp.json', JSON.stringify(snp))
const none = {
  url: 'https://up.example/v1',
  attestation: '' as const,
  attestation_policy: '',
  attestation_collateral: '',
  attestation_path: '/attestation',
  attestation_minutes: 30,
  attestation_simulated_root: '',
}

test('goal: both kinds, and none', () => {
  expect(loadAttestation(none, 'x')).toBe(null)
  const loaded = loadAttestation(
    { ...none, attestation: 'tdx', attestation_policy: tdxFile, attestation_collateral: '/c' },
    'x',
  )
  expect(loaded).toEqual({
    kind: 'tdx',
    policy: JSON.stringify(tdx),
    path: '/attestation',
    intervalMs: 1_800_000,
    collateralFile: '/c',
    simulatedRoot: null,
  })
  expect(policyDigest({ policy: 'abc' })).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
  expect(loadAttestation({ ...none, attestation: 'snp', attestation_policy: snpFile }, 'x')?.kind).toBe('snp')
})

test('goal: what contradicts itself', () => {
  const open = file('any.json', JSON.stringify({ ...tdx, mrTds: 'any' }))
  const anyLoader = file('any-loader.json', JSON.stringify({ ...tdx, rtmr1: 'any' }))
  const anyKernel = file('any-kernel.json', JSON.stringify({ ...tdx, rtmr2: 'any' }))
  const openSnp = file('any-snp.json', JSON.stringify({ ...snp, measurements: 'any' }))
  const data = file('data.json', JSON.stringify({ ...tdx, reportData: '00'.repeat(64) }))
  const cases = [
    [{ attestation_policy: tdxFile }, 'need attestation'],
    [{ attestation: 'tdx' }, 'needs attestation_policy'],
    [{ attestation: 'tdx', attestation_policy: tdxFile, url: 'http://up.example/v1' }, 'needs an https url'],
    [{ attestation: 'tdx', attestation_policy: snpFile }, 'policy.'],
    [{ attestation: 'snp', attestation_policy: tdxFile }, 'policy.'],
    [{ attestation: 'tdx', attestation_policy: open }, 'policy.mrTds: list the expected ones'],
    [{ attestation: 'tdx', attestation_policy: anyLoader }, 'policy.rtmr1: list the expected ones'],
    [{ attestation: 'tdx', attestation_policy: anyKernel }, 'policy.rtmr2: list the expected ones'],
    [{ attestation: 'snp', attestation_policy: openSnp }, 'policy.measurements: list the expected ones'],
    [{ attestation: 'tdx', attestation_policy: data }, 'policy.reportData'],
    [{ attestation: 'snp', attestation_policy: snpFile, attestation_collateral: '/c' }, 'is of TDX'],
    [{ attestation: 'tdx', attestation_policy: join(dir, 'none') }, 'attestation_policy: ENOENT'],
  ] as const
  for (const [changes, message] of cases) {
    expect(() => loadAttestation({ ...none, ...changes }, 'inference.upstreams "x"')).toThrow(message)
  }
})
