// Goal: `build submit` holds the result against the transparency log of the service that built it, in the place of a
// hash, waits until the log shows it, and unpacks nothing that is not in there.

import { afterAll, afterEach, beforeEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { type LogBench, openLogBench } from '../../../scripts/rigs/transparency.ts'
import { encodeNoteKey } from '../../../src/attest/log/note.ts'
import { decodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { decodeStatement } from '../../../src/attest/receipt/statement.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import type { LogFact } from '../../../src/contract/http/log-entry.ts'
import type { TransparencyLog } from '../../../src/transparency/log.ts'
import { logRoutes } from '../../../src/transparency/routes.ts'
import { openBuildSubmitter, type SubmitOptions, type Submitting } from '../../rigs/build/submitter.ts'
import { cosign } from '../../rigs/log/log-server.ts'
import { newSigner } from '../../rigs/log/log-signer.ts'
import { checksOf } from '../../rigs/program.ts'

const site = await openBuildSubmitter()
afterAll(() => site[Symbol.dispose]())
const witness = newSigner('witness.example/w', 'cosignature')

let bench: LogBench
let log: TransparencyLog
let self: Submitting
/** Facts that the service publishes before its result can be fetched. */
let facts: readonly LogFact[]

async function started(witnesses: readonly (typeof witness.key)[]): Promise<void> {
  bench = openLogBench({ begins: false, witnesses })
  log = bench.log
  log.begin()
  facts = [builtFact()]
  self = await site.start({
    others: logRoutes({ log, admit: () => {} }),
    beforeResult: () => log.append(...facts),
  })
}
beforeEach(() => started([]))
afterEach(async () => {
  await self[Symbol.asyncDispose]()
  bench[Symbol.dispose]()
})

/** The entry of the sample result. */
function builtFact(): LogFact {
  const statement = decodeStatement(decodeReceipt(site.sample.completion).statement)
  if (statement.kind !== 'build') throw new Error('it is of a build')
  const { image, keysDigest, provenanceDigest } = statement
  const digests = { measurement: image.measurement, keys: keysDigest, provenance: provenanceDigest }
  const [measurement = '', keys = '', provenance = ''] = Object.values(digests).map(toHex)
  return { kind: 'build', measurement, keys, provenance }
}

const keyText = () => encodeNoteKey(present(log.key(), 'a log'))
const state = () => ['--log-state', join(self.output, 'memory')]
const asking = () => ['--log', self.api, '--log-key', keyText(), ...state()]

async function submit(more: readonly string[], options: SubmitOptions = {}) {
  const { code, stdout, stderr } = await self.submit([...more, '--json'], { without: ['--own-image'], ...options })
  const document = stdout === '' ? {} : JSON.parse(stdout)
  const { verification = { checks: [] } } = document
  const isUnpacked = existsSync(join(self.output, 'demo'))
  const [failed, passed] = [checksOf(verification, 'FAIL'), checksOf(verification, 'PASS')]
  return { code, stderr, log: verification.log, failed, passed, isUnpacked }
}

test("goal: the service's own log stands for the measurement; without it the same build is refused", async () => {
  const proof = join(self.output, 'proof.txt')
  const logged = await submit([...asking(), '--in-log', '--unwitnessed', '--save-proof', proof])
  expect([logged.code, logged.failed, logged.isUnpacked]).toEqual([0, [], true])
  expect(logged.passed).toEqual(expect.arrayContaining(['log-included', 'log-checkpoint']))
  expect([logged.log, existsSync(proof)]).toEqual([{ index: 0, size: 1, fork_evidence: null }, true])
})

test('goal: without the log the same build is refused, as nothing says which image it may be', async () => {
  const alone = await submit([])
  expect([alone.code, alone.failed, alone.isUnpacked]).toEqual([6, ['pin-measurement'], false])
})

test('goal: a result that the log does not have is not unpacked, whatever else is good', async () => {
  facts = [{ kind: 'workload', sha256: 'ab'.repeat(32) }]
  const secret = await submit([...asking(), '--log-wait', '0'], { without: [] })
  expect([secret.code, secret.failed, secret.isUnpacked]).toEqual([1, ['log-included'], false])
})

test('goal: with a witness it waits until the log shows the build, as long as asked', async () => {
  await self[Symbol.asyncDispose]()
  bench[Symbol.dispose]()
  await started([witness.key])
  log.append({ kind: 'workload', sha256: 'cd'.repeat(32) })
  await cosign(log, witness, simulatedAsOf.getTime())
  let asked = 0
  self.intercept = async request => {
    if (!new URL(request.url).pathname.startsWith('/log/proof/')) return null
    asked += 1
    if (asked === 2) await cosign(log, witness, simulatedAsOf.getTime())
    return null
  }
  const witnessed = [...asking(), '--in-log', '--witness', encodeNoteKey(witness.key)]
  const found = await self.submit(witnessed, { without: ['--own-image'] })
  expect([found.code, asked, existsSync(join(self.output, 'demo'))]).toEqual([0, 2, true])
  expect(found.stderr).toContain('the log does not show it yet: waiting for a witness')
})

test('goal: client.toml names the log once and for all; an option goes before it', async () => {
  const configHome = mkdtempSync(join(site.dir, 'config-'))
  mkdirSync(join(configHome, 'strongroom'))
  const write = (...lines: string[]) =>
    writeFileSync(join(configHome, 'strongroom/client.toml'), `${lines.join('\n')}\n`, { mode: 0o600 })
  const named = [
    `log = "${self.api}"`,
    `log_key = "${keyText()}"`,
    `log_state = "memory"`,
    'in_log = true',
    'unwitnessed = true',
  ]
  write(...named)
  const found = await submit([], { configHome })
  expect([found.code, found.failed, found.log?.size]).toEqual([0, [], 1])
  expect(existsSync(join(configHome, 'strongroom/memory'))).toBe(true)
  rmSync(join(self.output, 'demo'), { recursive: true })
  const without = await submit(['--no-log', '--nonce', 'ab'], { configHome })
  expect([without.failed.includes('pin-measurement'), without.log]).toEqual([true, undefined])
})

test('goal: a mistake in the options of the log is seen before anything is sent', async () => {
  const builds = () => self.rig.store().directory.db.all('SELECT id FROM builds').length
  const stray = await submit(['--in-log'])
  const unwitnessed = await submit([...asking(), '--in-log'])
  const unkeyed = await submit(['--log', self.api])
  expect([stray.code, unwitnessed.code, unkeyed.code, builds()]).toEqual([2, 2, 2, 0])
})
