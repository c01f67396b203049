// Goal: whoever follows a log sees each entry once and every way in which it can lie: a fork, a tree that shrinks,
// another log in its place, entries that are not in the signed tree, names where digests belong, and floods.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createPrivateKey } from 'node:crypto'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type LogBench, openLogBench } from '../../../scripts/rigs/transparency.ts'
import { encodeCheckpoint } from '../../../src/attest/log/checkpoint.ts'
import { leafHash } from '../../../src/attest/log/merkle.ts'
import { encodeNote, encodeNoteKey } from '../../../src/attest/log/note.ts'
import { encodeEntries } from '../../../src/attest/log/tiles.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import type { LogFact } from '../../../src/contract/http/log-entry.ts'
import { insertLogEntry } from '../../../src/store/ledger/log.query.ts'
import type { TransparencyLog } from '../../../src/transparency/log.ts'
import { cosign, type LogServer, startLogServer } from '../../rigs/log/log-server.ts'
import { newSigner, signedBy } from '../../rigs/log/log-signer.ts'
import { expectUsageError, runHere } from '../../rigs/program.ts'

const policy = (n: number): LogFact => ({ kind: 'verifier-policy', sha256: n.toString(16).padStart(64, '0') })
const policies = (count: number) => Array.from({ length: count }, (_, n) => policy(n))

let bench: LogBench
let server: LogServer
let others: DisposableStack
beforeEach(async () => {
  others = new DisposableStack()
  bench = opened()
  server = await startLogServer(bench.directory, bench.log)
})
afterEach(async () => {
  await server[Symbol.asyncDispose]()
  others.dispose()
})

function opened(options: Parameters<typeof openLogBench>[0] = {}): LogBench {
  return others.use(openLogBench(options))
}

const state = () => join(bench.directory, 'memory')
const keyOf = (log = bench.log) =>
  encodeNoteKey(log.key() ?? { name: '', type: 'ed25519', publicKey: new Uint8Array(32) })

async function visit(...more: string[]) {
  const options = ['--log-ca', server.caFile, '--log-state', state(), '--log-key', keyOf(), ...more]
  const { code, stdout, stderr } = await runHere(['log', 'monitor', server.url, ...options, '--json'])
  if (code === 2) throw new Error(stderr + stdout)
  const { entries, problems, remarks, ...document } = JSON.parse(stdout)
  const indices: number[] = entries.map(({ index }: { index: number }) => index)
  return { code, indices, problems, remarks, document }
}

/** The same key and origin over other entries: what a host shows to one client alone. */
function forked(count: number): TransparencyLog {
  const other = opened({ begins: false })
  other.store.ledger.db.run(`INSERT INTO meta VALUES ('log_origin', '${bench.log.key()?.name}')`)
  writeFileSync(join(other.directory, 'log-key.pem'), readFileSync(join(bench.directory, 'log-key.pem')))
  const origin = bench.log.key()?.name ?? ''
  writeFileSync(
    join(other.directory, 'log-head.txt'),
    encodeCheckpoint({
      origin,
      size: 0,
      root: new Uint8Array(new Bun.CryptoHasher('sha256').digest()),
      extensions: [],
    }),
  )
  const log = other.reopened()
  log.begin()
  log.append(...Array.from({ length: count }, (_, n) => policy(1_000 + n)))
  expect(log.key()).toEqual(bench.log.key() as never)
  return log
}

test('goal: every entry once, over visits and bundles; without a witness it says whose word this is', async () => {
  bench.log.append(...policies(300))
  const first = await visit()
  expect([first.code, first.indices.length, first.problems, first.document.size]).toEqual([0, 300, [], 300])
  expect(first.remarks).toEqual([expect.stringContaining("its owner's word")])
  expect((await visit()).indices).toEqual([])
  bench.log.append(...policies(302), { kind: 'image', measurement: 'ab'.repeat(48) })
  expect((await visit()).indices).toEqual([300, 301, 302])
  expect((await visit('--all')).indices.length).toBe(303)
  const text = await runHere([
    'log',
    'monitor',
    server.url,
    '--log-ca',
    server.caFile,
    '--log-state',
    state(),
    '--log-key',
    keyOf(),
    '--all',
  ])
  expect(text.stdout).toContain(`302  image  measurement ${'ab'.repeat(48)}\n`)
})

test('goal: a witness that is named must have cosigned, and lately; its time is shown', async () => {
  const witness = newSigner('witness.example/w', 'cosignature')
  const log = bench.reopened({ witnesses: [witness.key] })
  server.log = log
  log.append(policy(1))
  await cosign(log, witness, Date.now() - 3_600_000)
  const named = ['--witness', encodeNoteKey(witness.key)]
  const good = await visit(...named)
  expect([good.code, good.remarks, good.document.witnesses]).toMatchObject([0, [], [{ name: witness.key.name }]])
  const stranger = newSigner('witness.example/x', 'cosignature')
  const bad = await visit('--witness', encodeNoteKey(stranger.key))
  expect([bad.code, bad.problems]).toEqual([1, ['0 of 1 witnesses have cosigned the checkpoint']])
  log.append(policy(2))
  await cosign(log, witness, Date.now() - 8 * 86_400_000)
  expect((await visit(...named)).problems).toEqual([expect.stringContaining('more than 7 days ago')])
})

// Goal: a host that forks or rewinds its log is seen at the next visit, and both its signed checkpoints are kept.
test.each([
  ['a smaller tree', 3, 'has shrunk'],
  ['another tree of the same size', 5, 'not those of the checkpoint'],
  ['another tree that is larger', 9, 'not those of the checkpoint'],
])('a fork: %s', async (_, count, problem) => {
  bench.log.append(...policies(5))
  expect((await visit()).code).toBe(0)
  server.log = forked(count)
  for (const more of [[], ['--all']]) {
    const seen = await visit(...more)
    expect([seen.code, seen.indices, seen.problems]).toEqual([1, [], [expect.stringContaining(problem)]])
    const evidence = JSON.parse(readFileSync(seen.document.fork_evidence, 'utf8'))
    const [earlier, later] = [bench.log.checkpoint(), server.log.checkpoint()]
    if (earlier === null || later === null) throw new Error('both are there')
    expect(evidence).toEqual({ earlier: encodeNote(earlier), later: encodeNote(later) })
  }
  // The honest log is still the one that is remembered.
  server.log = bench.log
  expect((await visit()).problems).toEqual([])
  expect(readdirSync(state()).filter(name => name.includes('fork')).length).toBe(1)
})

test('goal: a monitor without its own tree still has the checkpoint that `verify` has seen', async () => {
  bench.log.append(...policies(5))
  expect((await visit()).code).toBe(0)
  for (const name of readdirSync(state())) if (name.endsWith('.tree')) rmSync(join(state(), name))
  server.log = forked(9)
  expect((await visit()).problems).toEqual([expect.stringContaining('another tree than before')])
})

test('goal: entries that the tree does not have, and names in place of digests, are no entries', async () => {
  bench.log.append(...policies(3))
  server.answer = path =>
    path === '/log/tile/entries/000.p/3'
      ? new Response(encodeEntries([utf8('a'), utf8('b'), utf8('c')]) as never)
      : null
  expect((await visit()).problems).toContainEqual('the entries are not those of the checkpoint')
  server.answer = () => null
  const hostile = opened({ begins: false })
  const entry = utf8('{"format":"strongroom/log/v1","kind":"build","organization":"acme"}')
  insertLogEntry(hostile.store.ledger.db, { seq: 0, entry, leaf: leafHash(entry), nowMs: 1 })
  hostile.log.begin()
  server.log = hostile.log
  expect((await visit('--log-key', keyOf(hostile.log))).problems).toEqual([
    'entry 0 has an unsupported format, or more than digests in it',
  ])
})

test('goal: another origin, another key, no signature and no log are problems, and nothing is remembered', async () => {
  bench.log.append(policy(1))
  const other = opened()
  server.log = other.log
  expect((await visit()).problems).toEqual([`it is the log ${other.log.key()?.name}, not ${bench.log.key()?.name}`])
  const text = bench.log.checkpoint()?.text ?? ''
  const stranger = newSigner(bench.log.key()?.name ?? '', 'ed25519')
  server.answer = path =>
    path === '/log/checkpoint' ? new Response(encodeNote({ text, signatures: [signedBy(stranger, text)] })) : null
  expect((await visit()).problems).toEqual(['its key has not signed the checkpoint'])
  server.answer = () => new Response('no', { status: 404 })
  expect(await visit()).toMatchObject({ code: 3, problems: ['it has no checkpoint'] })
  server.answer = () => new Response('no note')
  expect((await visit()).problems).toEqual(['note: no empty line before its signatures'])
})

test('goal: sizes that nobody has, tiles that never end and floods of entries are refused before they are read', async () => {
  bench.log.append(policy(1))
  const key = bench.log.key()
  if (key === null) throw new Error('the log has begun')
  const signed = (size: string) => {
    // By the log's own key: what a hostile operator can do.
    const root = Buffer.alloc(32).toString('base64')
    const note = `${key.name}\n${size}\n${root}\n`
    const privateKey = createPrivateKey(readFileSync(join(bench.directory, 'log-key.pem'), 'utf8'))
    return encodeNote({ text: note, signatures: [signedBy({ key, privateKey }, note)] })
  }
  const sizes = { '9223372036854775808': 'checkpoint: size', '4503599627370496': 'new entries, at most', '-1': 'size' }
  for (const [size, problem] of Object.entries(sizes)) {
    server.asked.length = 0
    server.answer = path => (path === '/log/checkpoint' ? new Response(signed(size)) : null)
    expect([size, (await visit()).problems]).toEqual([size, [expect.stringContaining(problem)]])
    expect(server.asked).toEqual(['/log/checkpoint'])
  }
  server.answer = path => (path.startsWith('/log/tile') ? new Response('x'.repeat(1_000_000)) : null)
  expect((await visit()).problems).toEqual([expect.stringContaining('is larger than')])
  server.answer = path => (path.startsWith('/log/tile') ? new Response(new Uint8Array([0, 9, 1])) : null)
  expect((await visit()).problems).toEqual([expect.stringContaining('entry bundle')])
})

test('goal: without a key the first one counts, said so, and another one later does not', async () => {
  bench.log.append(policy(1))
  const argv = ['log', 'monitor', server.url, '--log-ca', server.caFile, '--log-state', state()]
  const first = await runHere(argv)
  expect([first.code, first.stderr]).toEqual([0, expect.stringContaining(keyOf())])
  const other = opened()
  server.log = other.log
  const later = await runHere(argv)
  expect([later.code, later.stdout]).toEqual([1, expect.stringContaining('FAIL it is the log')])
  await expectUsageError(['log', 'monitor', 'http://a.test'], 'It must be https://HOST:PORT')
  await expectUsageError(['log', 'monitor', server.url, '--witness', keyOf()], 'no key of a witness')
})
