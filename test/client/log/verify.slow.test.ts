// Goal: `verify gateway`, `instance` and `build` take the transparency log in the place of a hash: the entry that they
// make of the evidence itself must be in the tree that the log's key has signed, that this user saw before, and that a
// witness saw lately. A log that lies fails the verdict, whatever else is good.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import {
  allowlistText,
  clearRig,
  imageDigest,
  receiptKeys,
  simulatedHost,
} from '../../../scripts/rigs/gateway/attestation.ts'
import { simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { openLogBench } from '../../../scripts/rigs/transparency.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { encodeNoteKey } from '../../../src/attest/log/note.ts'
import { decodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { decodeStatement } from '../../../src/attest/receipt/statement.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import type { LogFact } from '../../../src/contract/http/log-entry.ts'
import { everything, startGateway, writeCaFile } from '../../rigs/gateway/attested-servers.ts'
import {
  clientFiles,
  makeInstanceAttestation,
  sampleInstance,
  sampleMeasurement,
  samplePublicKey,
} from '../../rigs/instances/instance-attestation.ts'
import { cosign, startLogServer } from '../../rigs/log/log-server.ts'
import { newSigner } from '../../rigs/log/log-signer.ts'
import { checksOf, expectUsageError, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-verify-log-'))
const gateway = await startGateway()
const asOf = simulatedAsOf.getTime()
const witness = newSigner('witness.example/w', 'cosignature')
const plain = openLogBench({ begins: false })
const log = plain.reopened({ witnesses: [witness.key] })
log.begin()
const server = await startLogServer(dir, log)
const key = encodeNoteKey(log.key() ?? witness.key)
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  plain[Symbol.dispose]()
  gateway[Symbol.dispose]()
  clearRig()
  rmSync(dir, { recursive: true })
})
beforeEach(() => {
  rmSync(join(dir, 'memory'), { recursive: true, force: true })
  Object.assign(server, { log, answer: () => null })
})

const file = (name: string, text: string | Uint8Array) => {
  const path = join(dir, name)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
  return path
}
const trusting = ['--log-key', key, '--log-state', join(dir, 'memory')]
const online = ['--log', server.url, '--log-ca', server.caFile, ...trusting]
const witnessed = ['--witness', encodeNoteKey(witness.key)]
/** For tests of everything but the witness. */
const unwitnessed = [...online, '--unwitnessed']

async function published(...facts: LogFact[]): Promise<void> {
  log.append(...facts)
  await cosign(log, witness, asOf)
}

async function verify(argv: readonly string[], variables: Record<string, string> = {}) {
  const { code, stdout, stderr } = await runHere(['verify', ...argv, '--json'], { variables })
  const document = JSON.parse(stdout)
  if (document.checks === undefined) throw new Error(stderr + stdout)
  return {
    code,
    document,
    failed: checksOf(document, 'FAIL'),
    passed: checksOf(document, 'PASS'),
    open: checksOf(document, 'NOT CHECKED'),
  }
}

const image: LogFact = { kind: 'image', measurement: toHex(sampleMeasurement) }
const { root, policy, gatewayPolicy } = await clientFiles()
const { measurements: _, ...unpinned } = JSON.parse(policy)
const instance = [
  ...['instance', sampleInstance.hostname, '--no-known-hosts', '--as-of', simulatedAsOf.toISOString()],
  ...['--public-key', samplePublicKey],
  ...['--document', file('attestation.json', JSON.stringify(await makeInstanceAttestation()))],
  ...['--trust-simulated-root', file('root.pem', root), '--gateway-policy', file('gateway.json', gatewayPolicy)],
]
const pinned = [...instance, '--policy', file('policy.json', policy)]
const byLog = [
  ...instance,
  '--policy',
  file('unpinned.json', JSON.stringify({ ...unpinned, measurements: 'any' })),
  '--in-log',
]

test("goal: an image that is in the log passes by it alone, and a witness makes it more than its owner's word", async () => {
  const none = await verify([...byLog, ...unwitnessed])
  expect([none.code, none.failed]).toEqual([1, ['log-included']])
  await published(image)
  const alone = await verify([...byLog, ...unwitnessed])
  expect([alone.code, alone.failed]).toEqual([0, []])
  expect(alone.open).toEqual(expect.arrayContaining(['log-witnessed', 'log-age', 'log-consistent']))
  const both = await verify([...byLog, ...online, ...witnessed])
  expect([both.code, both.document.log]).toEqual([0, { index: 0, size: 1, fork_evidence: null }])
  expect(both.passed).toEqual(
    expect.arrayContaining(['pin-measurement', 'log-included', 'log-consistent', 'log-witnessed', 'log-age']),
  )
  const text = await runHere(['verify', ...byLog, ...unwitnessed])
  expect(text.stdout).toContain(
    "that others see the same transparency log (no witness is named: what the log shows is its owner's word, to you alone)",
  )
  const seen = (await runHere(['verify', ...byLog, ...online, ...witnessed])).stdout
  expect(seen).toContain('log: entry 0 of 1 in ')
  expect(seen).toContain('not proved  what the image does and lets others read (you named no image; ')
})

test('goal: a log that the host makes for one client satisfies --in-log only with --unwitnessed, and says so', async () => {
  // The host signs a private tree with the log's own key; the entry of its secret image is in no tree that others see.
  const secret = openLogBench({ begins: false })
  writeFileSync(join(secret.directory, 'log-key.pem'), readFileSync(join(plain.directory, 'log-key.pem')))
  const forged = secret.reopened()
  forged.begin()
  forged.append(image)
  const forgedKey = encodeNoteKey(forged.key() ?? witness.key)
  server.log = forged
  const address = ['--log', server.url, '--log-ca', server.caFile, '--log-state', join(dir, 'memory')]
  const asked = [...byLog, ...address, '--log-key', forgedKey]
  await expectUsageError(['verify', ...asked], '--in-log requires --witness')
  const other = await verify([...asked, ...witnessed])
  expect([other.code, other.failed]).toEqual([6, ['log-witnessed']])
  const accepted = await verify([...asked, '--unwitnessed'])
  expect([accepted.code, accepted.failed]).toEqual([0, []])
  expect(accepted.open).toEqual(expect.arrayContaining(['pin-measurement', 'log-witnessed', 'log-age']))
  const text = await runHere(['verify', ...asked, '--unwitnessed', '--verbose'])
  expect(text.stdout).toContain('accepted entry 0 of 1 of an unwitnessed log: you asked with --unwitnessed')
  secret[Symbol.dispose]()
})

test('goal: a hash that is pinned stays pinned, and the log is asked besides', async () => {
  await published(image)
  expect((await verify([...pinned, ...online, ...witnessed])).code).toBe(0)
  const wrong = file('wrong.json', JSON.stringify({ ...unpinned, measurements: ['ab'.repeat(48)] }))
  const other = await verify([...instance, '--policy', wrong, '--in-log', ...online, ...witnessed])
  expect([other.document.ok, other.failed]).toEqual([false, expect.arrayContaining(['receipt/measurement'])])
})

test('goal: a witness that is old, or another, is a matter of policy: exit code 6', async () => {
  await published(image)
  const later = new Date(asOf + 8 * 86_400_000).toISOString()
  const old = await verify([
    ...byLog.with(byLog.indexOf('--as-of') + 1, later),
    ...online,
    ...witnessed,
    '--any-tcb',
    '--any-crl',
  ])
  expect(old.failed).toContain('log-age')
  const stranger = newSigner('witness.example/x', 'cosignature')
  const another = await verify([...byLog, ...online, '--witness', encodeNoteKey(stranger.key)])
  expect([another.code, another.failed]).toEqual([6, ['log-witnessed']])
  const two = [...witnessed, '--witness', encodeNoteKey(stranger.key), '--witness-quorum', '2']
  expect((await verify([...byLog, ...online, ...two])).failed).toContain('log-witnessed')
})

test('goal: a fork between two visits fails, keeps both checkpoints, and forgets neither', async () => {
  await published(image)
  expect((await verify([...byLog, ...unwitnessed])).code).toBe(0)
  const other = openLogBench({ begins: false })
  writeFileSync(join(other.directory, 'log-key.pem'), readFileSync(join(plain.directory, 'log-key.pem')))
  const forked = other.reopened({ name: 'x' })
  forked.begin()
  other.store.ledger.db.run(`UPDATE meta SET value = '${log.key()?.name}' WHERE name = 'log_origin'`)
  rmSync(join(other.directory, 'log-head.txt'))
  const text = log.signed(0)?.text ?? ''
  writeFileSync(join(other.directory, 'log-head.txt'), text)
  const again = other.reopened()
  again.append({ kind: 'workload', sha256: 'ab'.repeat(32) }, image, { kind: 'allowlist', sha256: 'ab'.repeat(32) })
  server.log = again
  const seen = await verify([...byLog, ...unwitnessed])
  expect([seen.code, seen.failed]).toEqual([1, ['log-consistent']])
  const evidence = JSON.parse(readFileSync(seen.document.log.fork_evidence, 'utf8'))
  expect([evidence.earlier.includes(`\n${log.shown()}\n`), evidence.later.includes('\n3\n')]).toEqual([true, true])
  server.log = log
  expect((await verify([...byLog, ...unwitnessed])).code).toBe(0)
  other[Symbol.dispose]()
})

test('goal: a saved proof works without the network for seven days, and never hides a fork', async () => {
  await published(image)
  const proof = join(dir, 'proof.txt')
  expect((await verify([...byLog, ...online, ...witnessed, '--save-proof', proof])).code).toBe(0)
  const offline = ['--log', proof, ...trusting, ...witnessed]
  const asked = server.asked.length
  const good = await verify([...byLog, ...offline])
  expect([good.code, good.passed.includes('log-consistent')]).toEqual([0, true])
  expect(server.asked.length).toBe(asked)
  await published({ kind: 'workload', sha256: 'cd'.repeat(32) })
  expect((await verify([...byLog, ...unwitnessed])).code).toBe(0)
  const older = await verify([...byLog, ...offline])
  expect([older.code, older.open.includes('log-consistent')]).toEqual([0, true])
  const lines = readFileSync(proof, 'utf8')
  const bad = await verify([
    ...byLog,
    '--log',
    file('bad.txt', lines.replace(/index [0-9]+/, 'index 7')),
    ...trusting,
    ...witnessed,
  ])
  expect([bad.code, bad.failed]).toEqual([1, ['log-included']])
})

test('goal: a log that does not answer is exit code 3, one that answers nonsense 2; nobody is let in', async () => {
  await published(image)
  for (const [answer, code, name] of [
    [() => new Response('no', { status: 500 }), 3, 'log-connection'],
    [() => new Response('x'.repeat(200_000)), 3, 'log-connection'],
    [() => new Response('nonsense'), 2, 'log-format'],
  ] as const) {
    server.answer = answer
    const found = await verify([...byLog, ...unwitnessed])
    expect([found.code, found.failed]).toEqual([code, [name]])
  }
  expect(existsSync(join(dir, 'memory'))).toBe(false)
})

test('goal: options that say nothing are refused', async () => {
  await expectUsageError(['verify', ...instance, '--in-log'], '--in-log requires --log')
  await expectUsageError(['verify', ...instance, '--unwitnessed'], '--unwitnessed requires --log')
  await expectUsageError(['verify', ...pinned, ...unwitnessed], '--unwitnessed requires --in-log')
  await expectUsageError(['verify', ...byLog, ...unwitnessed, ...witnessed], '--unwitnessed contradicts --witness')
  await expectUsageError(['verify', ...instance, '--log', server.url], '--log goes with --log-key')
  await expectUsageError(['verify', ...instance, '--log', server.url, '--log-key', 'x'], 'it is not NAME+ID+KEY')
  await expectUsageError(['verify', ...instance, ...online, '--witness', key], 'no key of a witness')
  await expectUsageError(
    ['verify', ...instance, ...online, ...witnessed, '--witness-quorum', '2'],
    '1 witnesses are named',
  )
  const state = ['--log-state', join(dir, 'memory')]
  await expectUsageError(['verify', ...instance, ...state], '--log-state requires --log')
  for (const limit of ['--witness-quorum', '--log-age-days']) {
    await expectUsageError(['verify', ...instance, ...online, limit, '1'], `${limit} requires --witness`)
  }
  const name = witness.key.name
  await expectUsageError(
    ['verify', ...instance, ...online, ...witnessed, ...witnessed, '--witness-quorum', '2'],
    `--witness ${name}: its key is that of another one`,
  )
  const own = encodeNoteKey({ ...(log.key() ?? witness.key), name, type: 'cosignature' })
  await expectUsageError(
    ['verify', ...instance, ...online, '--witness', own],
    `--witness ${name}: its key is the log's own`,
  )
  mkdirSync(join(dir, 'memory'), { recursive: true })
  await published(image)
  await verify([...byLog, ...unwitnessed])
  const [kept = ''] = Array.from(new Bun.Glob('*.checkpoint').scanSync(join(dir, 'memory')))
  writeFileSync(join(dir, 'memory', kept), 'damaged')
  await expectUsageError(['verify', ...byLog, ...unwitnessed], 'note: no empty line')
})

/** Variables of a user with this client.toml. */
function configured(...lines: string[]): Record<string, string> {
  const home = join(dir, 'config')
  rmSync(home, { recursive: true, force: true })
  const path = file('config/strongroom/client.toml', `${lines.join('\n')}\n`)
  chmodSync(path, 0o600)
  return { XDG_CONFIG_HOME: home }
}

const namedLog = [
  `log = "${server.url}"`,
  `log_key = "${key}"`,
  `log_ca = "${server.caFile}"`,
  `log_state = "${join(dir, 'memory')}"`,
]
const namedWitness = `witness = ["${encodeNoteKey(witness.key)}"]`
const eightDaysLater = new Date(asOf + 8 * 86_400_000).toISOString()

test('goal: client.toml names log, key, witnesses, age and in_log once and for all, for instances as for gateways', async () => {
  await published(image)
  const unpinned = byLog.slice(0, -1)
  const none = await verify(unpinned, configured(...namedLog, namedWitness))
  expect([none.failed, none.passed.includes('log-witnessed')]).toEqual([['pin-measurement'], true])
  const found = await verify(unpinned, configured(...namedLog, namedWitness, 'in_log = true'))
  expect([found.code, found.failed]).toEqual([0, []])
  expect(found.passed).toEqual(expect.arrayContaining(['pin-measurement', 'log-included', 'log-witnessed', 'log-age']))
  const argv = ['gateway', gateway.url, '--ca', writeCaFile(), '--trust-simulated-root', (await everything())[1] ?? '']
  const other = await verify(argv, configured(...namedLog, 'in_log = true', 'unwitnessed = true'))
  expect([other.code, other.failed]).toEqual([1, ['log-included']])
  expect((await verify([...argv, '--no-log'], configured(...namedLog, 'in_log = true'))).failed).toEqual([
    'pin-measurement',
    'pin-allowlist',
  ])
})

test('goal: an option goes before the same one of client.toml, and the age limit is the one that was asked for', async () => {
  await published(image)
  const stranger = encodeNoteKey(newSigner('witness.example/x', 'cosignature').key)
  const mine = configured(...namedLog, namedWitness, 'in_log = true', 'log_age_days = 9')
  const unpinned = byLog.slice(0, -1)
  expect((await verify([...unpinned, '--witness', stranger], mine)).failed).toEqual(['log-witnessed'])
  const lateArgv = [...unpinned.with(unpinned.indexOf('--as-of') + 1, eightDaysLater), '--any-tcb', '--any-crl']
  expect((await verify(lateArgv, mine)).passed).toContain('log-age')
  const strict = await verify([...lateArgv, '--log-age-days', '7'], mine)
  expect(strict.failed).toContain('log-age')
  const older = configured(...namedLog, `witness = ["${stranger}"]`, 'witness_quorum = 1', 'in_log = true')
  expect((await verify(unpinned, older)).failed).toEqual(['log-witnessed'])
})

test('goal: a mistake in the log of client.toml is refused before anything is asked', async () => {
  const argv = ['verify', ...byLog.slice(0, -1)]
  const refused = async (message: string, ...lines: string[]) => {
    const { code, stderr } = await runHere(argv, { variables: configured(...lines) })
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)])
  }
  const asked = server.asked.length
  await refused('in_log requires log', 'in_log = true')
  await refused('unwitnessed requires log', 'unwitnessed = true')
  await refused('--in-log requires --witness', ...namedLog, 'in_log = true')
  await refused('--unwitnessed contradicts --witness', ...namedLog, namedWitness, 'in_log = true', 'unwitnessed = true')
  await refused('--log goes with --log-key', namedLog[0] ?? '')
  await refused('client.toml: log: It must be https://HOST:PORT.', 'log = "http://x"')
  await refused('client.toml: witness: It is no key of a witness', ...namedLog, `witness = ["${key}"]`)
  await refused('client.toml: log_key: It is the key of a witness', `log_key = "${encodeNoteKey(witness.key)}"`)
  await refused('1 witnesses are named', ...namedLog, namedWitness, 'witness_quorum = 2')
  await refused('--log-age-days requires --witness', ...namedLog, 'log_age_days = 7')
  expect(server.asked.length).toBe(asked)
  const monitored = await runHere(['log', 'monitor', server.url, '--json'], { variables: configured(...namedLog) })
  expect([monitored.code, JSON.parse(monitored.stdout).problems]).toEqual([0, []])
  // The authority of the services is that of the log which client.toml names, as for `verify`.
  const byCa = [...namedLog.with(2, `ca = "${server.caFile}"`)]
  expect((await runHere(['log', 'monitor', server.url, '--json'], { variables: configured(...byCa) })).code).toBe(0)
  const others = [...namedLog.with(0, 'log = "https://other.example"'), namedWitness]
  const options = ['--log-ca', server.caFile, '--log-state', join(dir, 'memory'), '--log-key', key]
  const another = await runHere(['log', 'monitor', server.url, ...options, '--json'], {
    variables: configured(...others),
  })
  expect(JSON.parse(another.stdout).remarks).toEqual([expect.stringContaining('no witness is named')])
})

test("goal: a gateway's start in the log stands for its measurement and its workload; one that was not logged fails", async () => {
  const [, rootFile = ''] = await everything()
  const argv = [
    'gateway',
    gateway.url,
    '--ca',
    writeCaFile(),
    '--trust-simulated-root',
    rootFile,
    '--in-log',
    ...unwitnessed,
  ]
  const secret = await verify(argv)
  expect([secret.code, secret.failed]).toEqual([1, ['log-included']])
  const host = await simulatedHost()
  await published({
    kind: 'gateway-start',
    measurement: toHex(host.measurementOf(imageDigest)),
    workload: toHex(sha256(utf8(allowlistText))),
    operator_key: toHex(host.operatorKey),
    receipt_key: toHex(sha256(receiptKeys().publicKeys.ed25519)),
  })
  const found = await verify(argv)
  expect([found.code, found.failed]).toEqual([0, []])
  expect(found.passed).toContain('log-included')
  expect(found.open).toEqual(expect.arrayContaining(['pin-measurement', 'pin-allowlist', 'log-witnessed']))
})

test('goal: a build whose receipt is in the log passes by it; another result of the same VM image does not', async () => {
  const sample = await sampleResult()
  for (const [path, bytes] of sample.files) file(join('demo', path), bytes)
  const argv = [
    ...[
      'build',
      join(dir, 'demo'),
      '--nonce',
      toHex(sample.nonce),
      '--any-source',
      '--as-of',
      simulatedAsOf.toISOString(),
    ],
    ...['--trust-simulated-root', join(dir, 'root.pem'), '--in-log', ...online, ...witnessed],
  ]
  const statement = decodeStatement(decodeReceipt(sample.completion).statement)
  if (statement.kind !== 'build') throw new Error('it is of a build')
  const { image: built, keysDigest, provenanceDigest } = statement
  const fact = {
    kind: 'build',
    measurement: toHex(built.measurement),
    keys: toHex(keysDigest),
    provenance: 'ab'.repeat(32),
  } as const
  await published(fact)
  const other = await verify(argv)
  expect([other.failed.includes('log-included'), other.open.includes('pin-measurement')]).toEqual([true, true])
  await published({ ...fact, provenance: toHex(provenanceDigest) })
  const found = await verify(argv)
  expect(found.failed.filter(name => /^(log|pin)/.test(name))).toEqual([])
  expect(found.passed).toEqual(expect.arrayContaining(['pin-measurement', 'log-included']))
})
