// Goal: a policy that names the operator's list of chips accepts those chips alone, and the verdict names the list and
// its age; a list that is old, foreign or not in the log does not count.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type SimulatedPlatform,
  simulatedAsOf,
  simulatedPlatform,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { openLogBench } from '../../../scripts/rigs/transparency.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { signChipList } from '../../../src/attest/policy/chip-list.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { askChipList, knownLog } from '../../../src/client/log/options.ts'
import { readPolicy } from '../../../src/client/trust/trust-options.ts'
import { startLogServer } from '../../rigs/log/log-server.ts'
import { checksOf, expectUsageError, runJson } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-chips-'))
afterAll(() => rmSync(dir, { recursive: true }))

const day = 86_400_000
const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const operator = await idKeyDigest(await publicIdKey(keys.publicKey))

let platform: SimulatedPlatform
let argv: string[]
let own: Uint8Array

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

const policyFile = (chipIds: object, idKeyDigest: string = toHex(operator)) =>
  file('policy.json', JSON.stringify({ ...encodePolicy(strictPolicy()), idKeyDigest, chipIds }))

const listed = async (name: string, chipIds: Uint8Array[], ageDays = 3) =>
  file(name, await signChipList({ chipIds, issuedAtMs: simulatedAsOf.getTime() - ageDays * day }, keys))

beforeAll(async () => {
  platform = await simulatedPlatform('genoa')
  const { ark, ask, asvk } = platform.authority.root
  const root = file('root.pem', [asvk, ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
  const report = await platform.report({ report: { platformInfo: 0x21n, idKeyDigest: operator } })
  own = decodeReport(report).chipId
  argv = [
    ...['verify', 'report', '--report', file('report.bin', report), '--vek', file('vcek.der', platform.vcek)],
    ...['--as-of', simulatedAsOf.toISOString(), '--any-measurement', '--any-crl', '--trust-simulated-root', root],
  ]
})

const reasonOf = (document: Record<string, unknown>, name: string) =>
  (document.checks as { name: string; reason: string }[]).find(check => check.name === name)?.reason ?? ''

// Goal: a listed chip passes, and the verdict says by which list and how old it is.
test('a chip in the list passes, and the verdict names list, signer and age', async () => {
  const path = await listed('chips.json', [own, new Uint8Array(64).fill(7)])
  const { code, document } = await runJson(...argv, '--policy', policyFile({ list: 'chips.json', maxAgeDays: 30 }))
  expect([code, checksOf(document, 'FAIL')]).toEqual([0, []])
  expect(reasonOf(document, 'chip-list')).toBe(
    `${path}, 2 chips, signed by the operator key ${toHex(operator).slice(0, 16)}… 3 days ago ` +
      `(${new Date(simulatedAsOf.getTime() - 3 * day).toISOString()}); not compared with a transparency log`,
  )
})

// Goal: a genuine chip in another owner's house fails.
test('a genuine chip that is not in the list fails', async () => {
  await listed('chips.json', [new Uint8Array(64).fill(7)])
  const { code, document } = await runJson(...argv, '--policy', policyFile({ list: 'chips.json', maxAgeDays: 'any' }))
  expect([code, checksOf(document, 'FAIL')]).toEqual([6, ['chip-id']])
})

// Goal: a list that is old, foreign, missing or unsigned never counts.
test('lists that do not count are errors that name the remedy', async () => {
  await listed('chips.json', [own], 31)
  const old = policyFile({ list: 'chips.json', maxAgeDays: 30 })
  await expectUsageError([...argv, '--policy', old], 'more than the 30 days of maxAgeDays ago')
  await listed('chips.json', [own], -1)
  await expectUsageError([...argv, '--policy', old], 'which is still to come')
  await listed('chips.json', [own])
  await expectUsageError([...argv, '--policy', old, '--chip-id', toHex(own)], 'names a list of chips, too')
  const noKey = policyFile({ list: 'chips.json', maxAgeDays: 30 }, 'any')
  await expectUsageError([...argv, '--policy', noKey], 'no operator key is named that must have signed it')
  const otherKey = policyFile({ list: 'chips.json', maxAgeDays: 30 }, 'aa'.repeat(48))
  await expectUsageError([...argv, '--policy', otherKey], 'signed by another operator key')
  await expectUsageError([...argv, '--policy', policyFile({ list: 'none.json', maxAgeDays: 30 })], 'no such file')
  await expectUsageError([...argv, '--policy', policyFile({ list: 'chips.json' })], 'policy.chipIds.maxAgeDays: it is')
})

// Goal: of two keys that a policy names, the one that signed the list vouches for its own VMs alone.
test('a list by one key does not vouch for VMs of another', async () => {
  const foreign = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
  const other = await idKeyDigest(await publicIdKey(foreign.publicKey))
  const both = { ...encodePolicy(strictPolicy()), idKeyDigest: [toHex(operator), toHex(other)] }
  const policy = file('both.json', JSON.stringify({ ...both, chipIds: { list: 'chips.json', maxAgeDays: 30 } }))
  await listed('chips.json', [own])
  expect((await runJson(...argv, '--policy', policy)).code).toBe(0)
  const issuedAtMs = simulatedAsOf.getTime()
  file('chips.json', await signChipList({ chipIds: [own], issuedAtMs }, foreign))
  const { code, document } = await runJson(...argv, '--policy', policy)
  expect([code, checksOf(document, 'FAIL')]).toEqual([6, ['id-key-digest']])
})

// Goal: with a log, a list that the operator did not publish fails.
test('a log that is used must have the list', async () => {
  using bench = openLogBench()
  await using server = await startLogServer(bench.directory, bench.log)
  await listed('chips.json', [own])
  const pins = { vmpl: 'required' } as const
  const flags = { asOf: simulatedAsOf.getTime() }
  const policy = await readPolicy(policyFile({ list: 'chips.json', maxAgeDays: 30 }), pins, flags)
  const key = bench.log.key()
  if (key === null) throw new Error('the log has begun')
  const question = {
    source: { url: new URL(`${server.url}/log`), ca: await Bun.file(server.caFile).text(), timeoutMs: 10_000 },
    known: { ...knownLog(key, {}), unwitnessed: true },
    ...{ memory: null, saveProof: undefined, inLog: false, isUnwitnessed: false },
  }
  const asked = async () =>
    (await askChipList(policy, question, simulatedAsOf.getTime())).map(({ outcome, reason }) => [outcome, reason])
  bench.log.append({ kind: 'verifier-policy', sha256: '00'.repeat(32) })
  expect(await asked()).toEqual([['fail', expect.stringContaining('the log does not have this chip-list')]])
  const bytes = utf8(await Bun.file(join(dir, 'chips.json')).text())
  bench.log.append({ kind: 'chip-list', sha256: toHex(sha256(bytes)) })
  expect(await asked()).toEqual([['pass', expect.stringMatching(/; entry \d+ of \d+ in the transparency log$/)]])
})
