// Goal: `verify instance`, `gateway` and `build` compare every report with the operator's list of chips, name the list,
// and refuse one that the log lacks.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import { chipIdOf, simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { openLogBench } from '../../../scripts/rigs/transparency.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { encodeNoteKey } from '../../../src/attest/log/note.ts'
import { signChipList } from '../../../src/attest/policy/chip-list.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { everything, startGateway, writeCaFile } from '../../rigs/gateway/attested-servers.ts'
import {
  clientFiles,
  makeInstanceAttestation,
  sampleInstance,
  sampleMeasurement,
  samplePublicKey,
} from '../../rigs/instances/instance-attestation.ts'
import { startLogServer } from '../../rigs/log/log-server.ts'
import { newSigner } from '../../rigs/log/log-signer.ts'
import { checksOf, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-log-chips-'))
const bench = openLogBench()
const server = await startLogServer(dir, bench.log)
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  bench[Symbol.dispose]()
  clearRig()
  rmSync(dir, { recursive: true })
})

const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const operatorKey = await idKeyDigest(await publicIdKey(keys.publicKey))
const operator = toHex(operatorKey)
const ofOperator = { report: { idKeyDigest: operatorKey }, statement: { operatorKey } }
const stranger = new Uint8Array(64).fill(7)
const { root, policy, gatewayPolicy } = await clientFiles()

const file = (name: string, text: string | Uint8Array) => {
  mkdirSync(dirname(join(dir, name)), { recursive: true })
  writeFileSync(join(dir, name), text)
  return join(dir, name)
}
const rootFile = file('root.pem', root)

/** Writes a list of these chips, and a policy like the given one that names it; returns its options and the list. */
async function listed(base: string, chipIds: readonly Uint8Array[], issuedAtMs = simulatedAsOf.getTime()) {
  const list = await signChipList({ chipIds, issuedAtMs }, keys)
  file('chips.json', list)
  const { idKeyDigest: own, ...fields } = JSON.parse(base)
  const named = { ...fields, idKeyDigest: [own, operator], chipIds: { list: 'chips.json', maxAgeDays: 30 } }
  return { list, options: ['--policy', file('policy.json', JSON.stringify(named))] }
}

async function verify(...argv: readonly string[]) {
  const { code, stdout, stderr } = await runHere(['verify', ...argv, '--json'])
  const document = JSON.parse(stdout)
  if (document.checks === undefined) throw new Error(stderr + stdout)
  return { code, document, failed: checksOf(document, 'FAIL'), passed: checksOf(document, 'PASS') }
}

const instance = [
  ...['instance', sampleInstance.hostname, '--no-known-hosts', '--as-of', simulatedAsOf.toISOString()],
  ...['--public-key', samplePublicKey, '--trust-simulated-root', rootFile],
  ...['--document', file('attestation.json', JSON.stringify(await makeInstanceAttestation(ofOperator)))],
  ...['--gateway-policy', file('gateway.json', gatewayPolicy)],
]

// Goal: without the list in the log an instance fails, although list and chip are right; with it, the place is named.
test('an instance, with the log', async () => {
  const { list, options } = await listed(policy, [chipIdOf('genoa')])
  const key = encodeNoteKey(bench.log.key() ?? newSigner('x.example/x', 'ed25519').key)
  const log = ['--log', server.url, '--log-ca', server.caFile, '--log-key', key, '--log-state', join(dir, 'memory')]
  bench.log.append({ kind: 'image', measurement: toHex(sampleMeasurement) })
  const absent = await verify(...instance, ...options, ...log)
  expect([absent.code, absent.document.ok, absent.failed]).toEqual([6, false, ['chip-list']])
  const away = await verify(...instance, ...options, '--log', 'https://127.0.0.1:1', ...log.slice(2))
  expect([away.code, away.failed.includes('chip-list/log-connection'), away.failed.includes('chip-list')]).toEqual([
    ...[3, true, false],
  ])
  bench.log.append({ kind: 'chip-list', sha256: toHex(sha256(utf8(list))) })
  const there = await verify(...instance, ...options, ...log)
  expect([there.code, there.failed, there.passed.includes('chip-list')]).toEqual([0, [], true])
  const text = await runHere(['verify', ...instance, ...options, ...log])
  expect(text.stdout).toMatch(
    /chip compared with \S*chips\.json, 1 chip, signed by the operator key .* in the transparency log/,
  )
})

// Goal: another machine than the list's fails in the receipt's own check, and the list is named nevertheless.
test('an instance on a chip that is not listed', async () => {
  const { options } = await listed(policy, [stranger])
  const { code, document, passed } = await verify(...instance, ...options)
  expect([code, document.ok]).toEqual([6, false])
  expect(JSON.stringify(document)).toContain('chip-id')
  expect(passed).toContain('chip-list')
})

// Goal: each receipt of a gateway is compared, now, with the list.
test('a gateway', async () => {
  using gateway = await startGateway()
  const all = await everything()
  const at = all.indexOf('--policy')
  const base = readFileSync(all[at + 1] ?? '', 'utf8')
  const { options } = await listed(base, [stranger], Date.now())
  const argv = ['gateway', gateway.url, '--ca', writeCaFile(), ...all.toSpliced(at, 2)]
  const { code, document, passed } = await verify(...argv, ...options)
  expect([code, passed.includes('chip-list')]).toEqual([6, true])
  for (const receipt of document.receipts)
    expect(checksOf(receipt, 'FAIL')).toEqual(['evidence', 'id-key-digest', 'chip-id'])
})

// Goal: a build on a listed chip names the list, and one on another chip fails.
test('a build', async () => {
  const sample = await sampleResult()
  for (const [path, bytes] of sample.files) file(join('demo', path), bytes)
  const argv = ['build', join(dir, 'demo'), '--nonce', toHex(sample.nonce), '--any-source', '--any-measurement']
  const more = ['--any-crl', '--as-of', simulatedAsOf.toISOString(), '--trust-simulated-root', rootFile]
  const judge = async (chip: Uint8Array) => {
    const { measurements: _, ...open } = JSON.parse(policy)
    const { options } = await listed(JSON.stringify({ ...open, measurements: 'any' }), [chip])
    return await verify(...argv, ...more, ...options)
  }
  const [good, bad] = [await judge(chipIdOf('genoa')), await judge(stranger)]
  expect(good.passed).toContain('chip-list')
  expect(good.failed.filter(name => /chip/.test(name))).toEqual([])
  expect(bad.document.ok).toBe(false)
  expect(JSON.stringify(bad.document.receipts)).toMatch(/"name":"chip-id","result":"FAIL"/)
})
