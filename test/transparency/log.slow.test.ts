// Goal: what this host served stands in one append-only tree, durably and once; a database of before never goes on with
// it, so that nobody is shown a fork by a restore.

import { expect, test } from 'bun:test'
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { openLogBench } from '../../scripts/rigs/transparency.ts'
import { decodeCheckpoint, encodeCheckpoint, verifiedSigners } from '../../src/attest/log/checkpoint.ts'
import { isConsistent, isIncluded, leafHash } from '../../src/attest/log/merkle.ts'
import { decodeLogProof } from '../../src/attest/log/proof.ts'
import { decodeEntries, tileAt } from '../../src/attest/log/tiles.ts'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { encodeLogEntry, type LogFact, readLogEntry } from '../../src/contract/http/log-entry.ts'
import type { TransparencyLog } from '../../src/transparency/log.ts'
import { newSigner, signedBy } from '../rigs/log/log-signer.ts'

const policy = (n: number): LogFact => ({ kind: 'verifier-policy', sha256: n.toString(16).padStart(64, '0') })
const headOf = (log: TransparencyLog) => decodeCheckpoint(log.checkpoint()?.text ?? '')
const headFile = (bench: { readonly directory: string }) => join(bench.directory, 'log-head.txt')

test('goal: each fact is in the log once, over restarts too; proofs of every size lead to the signed root', async () => {
  using bench = openLogBench()
  const sizes = []
  for (let n = 0; n < 35; n += 1) {
    bench.log.append(policy(n), policy(0))
    sizes.push(headOf(bench.log))
  }
  expect(sizes.map(({ size }) => size)).toEqual(Array.from({ length: 35 }, (_, n) => n + 1))
  const log = bench.reopened()
  log.append(policy(3))
  const head = headOf(log)
  expect([head.size, head.origin]).toEqual([35, headOf(bench.log).origin])
  for (const older of sizes) expect(isConsistent(older, head, log.consistency(older.size, head.size))).toBe(true)
  const leaf = leafHash(encodeLogEntry(policy(21)))
  const proof = decodeLogProof(utf8(log.proof(leaf) ?? ''))
  expect(isIncluded({ index: proof.index, leaf, proof: proof.hashes }, head)).toBe(true)
  expect(log.proof(leafHash(utf8('never')))).toBeNull()
  const key = log.key()
  if (key === null) throw new Error('the log has begun')
  expect(await verifiedSigners(proof.note, [key])).toMatchObject([{ atMs: null }])
})

test('goal: tiles have exactly what the checkpoint covers, the same bytes at each width', () => {
  using bench = openLogBench()
  bench.log.append(...Array.from({ length: 300 }, (_, n) => policy(n)))
  const read = (path: string) => {
    const tile = tileAt(path)
    return tile === null ? null : bench.log.tile(tile)
  }
  const whole = read('tile/0/000')
  expect([whole?.length, read('tile/0/001.p/44')?.length, read('tile/1/000.p/1')?.length]).toEqual([8192, 1408, 32])
  expect(read('tile/0/000.p/7')).toEqual(whole?.slice(0, 7 * 32) ?? null)
  for (const missing of ['tile/0/001', 'tile/0/001.p/45', 'tile/0/002.p/1', 'tile/1/000.p/2', 'tile/2/000.p/1'])
    expect([missing, read(missing)]).toEqual([missing, null])
  const entries = decodeEntries(read('tile/entries/001.p/44') ?? new Uint8Array(0), 44)
  expect(entries.map(readLogEntry)).toMatchObject(Array.from({ length: 44 }, (_, n) => policy(256 + n)))
})

test('goal: a database that lacks what was served begins another log, which names the one before', () => {
  using bench = openLogBench()
  bench.log.append(policy(1), policy(2))
  const before = headOf(bench.log)
  const copy = join(bench.directory, 'head-of-later')
  bench.log.append(policy(3))
  const later = headOf(bench.log)
  copyFileSync(headFile(bench), copy)
  // As after a way back to a copy of the database.
  bench.store.ledger.db.run('DELETE FROM log_entries WHERE seq = 2')
  const log = bench.reopened()
  expect([log.head(), log.checkpoint(), log.key()]).toEqual([null, null, null])
  log.begin()
  const again = headOf(log)
  expect([again.origin === before.origin, again.size]).toEqual([false, 3])
  const former = new Bun.CryptoHasher('sha256').update(encodeCheckpoint(later)).digest('hex')
  expect(readLogEntry(log.entries(2, 1)[0]?.entry ?? new Uint8Array(0))).toEqual({
    format: 'strongroom/log/v1',
    kind: 'former-log',
    sha256: former,
    size: 3,
  })
  log.append(policy(9))
  expect([headOf(bench.reopened()).size, bench.events]).toEqual([4, ['log.begun', 'log.begun']])
})

test('goal: a restored state directory, without the file of the head, and one whose tree was changed begin anew', () => {
  using bench = openLogBench()
  bench.log.append(policy(1), policy(2), policy(3))
  const { origin } = headOf(bench.log)
  const origins = [origin]
  const anew = (change: () => void) => {
    change()
    const log = bench.reopened()
    log.begin()
    origins.push(headOf(log).origin)
  }
  anew(() => rmSync(headFile(bench)))
  anew(() => writeFileSync(headFile(bench), 'no head'))
  anew(() => bench.store.ledger.db.run('UPDATE log_hashes SET hash = zeroblob(32) WHERE level = 2'))
  expect(new Set(origins).size).toBe(4)
  anew(() => {})
  expect(origins.at(-1)).toBe(origins.at(-2) ?? '')
})

test('goal: killed between the database and the head, and between both and the world, the log goes on as one', () => {
  using bench = openLogBench()
  bench.log.append(policy(1))
  const kept = join(bench.directory, 'kept')
  copyFileSync(headFile(bench), kept)
  bench.log.append(policy(2))
  copyFileSync(kept, headFile(bench))
  const log = bench.reopened()
  // After the crash the fact comes again, for nobody was served.
  log.append(policy(2))
  expect([headOf(log).size, headOf(log).origin]).toEqual([2, headOf(bench.log).origin])
  expect(headOf(bench.reopened()).size).toBe(2)
})

test('goal: a head that cannot be written keeps back what the entry speaks of, and the next try mends it', () => {
  using bench = openLogBench()
  bench.log.append(policy(1))
  const inTheWay = `${headFile(bench)}.next`
  mkdirSync(inTheWay)
  expect(() => bench.log.append(policy(2))).toThrow()
  rmSync(inTheWay, { recursive: true })
  expect(headOf(bench.reopened()).size).toBe(1)
  bench.log.append(policy(2))
  expect(headOf(bench.reopened()).size).toBe(2)
})

const witness = newSigner('witness.example/w', 'cosignature')

test('goal: with a witness nothing is shown before it has cosigned, and a smaller tree never again', async () => {
  const nowMs = Date.UTC(2026, 10, 26)
  const clock = { nowMs: () => nowMs }
  using bench = openLogBench({ witnesses: [witness.key], clock })
  const { log } = bench
  log.append(policy(1), policy(2))
  expect([log.shown(), headOf(log).size, log.tile({ level: 0, index: 0, width: 1 })]).toEqual([0, 0, null])
  const cosigned = (size: number, atMs = nowMs, signer = witness) => {
    const note = log.signed(size)
    if (note === null) throw new Error('the log has begun')
    return { ...note, signatures: [...note.signatures, signedBy(signer, note.text, atMs)] }
  }
  const cosign = (note: ReturnType<typeof cosigned>) => log.cosign(note, decodeCheckpoint(note.text))
  expect(await cosign(cosigned(2))).toEqual([witness.key.name])
  const found = log.checkpoint()
  if (found === null) throw new Error('it was cosigned')
  expect((await verifiedSigners(found, [witness.key])).map(({ atMs }) => atMs)).toEqual([nowMs])
  const refused = [
    cosigned(2, nowMs + 3_600_000),
    cosigned(2, nowMs, newSigner('witness.example/w', 'cosignature')),
    cosigned(1),
  ]
  for (const note of refused) await expect(cosign(note)).rejects.toThrow('no new cosignature')
  const forked = {
    ...cosigned(2),
    text: encodeCheckpoint({ ...decodeCheckpoint(cosigned(2).text), root: new Uint8Array(32) }),
  }
  await expect(cosign(forked)).rejects.toThrow('no tree of 2 entries')
  await expect(cosign({ ...forked, text: forked.text.replace('agents', 'others') })).rejects.toThrow('is of the log')
  expect([log.shown(), bench.reopened({ witnesses: [] }).shown()]).toEqual([2, 2])
  log.append(policy(3))
  expect([headOf(log).size, log.head()?.size]).toEqual([2, 3])
})

test('goal: a cosignature of the same tree is renewed by a later one, and a larger tree is shown at once', async () => {
  let nowMs = Date.UTC(2026, 10, 26)
  using bench = openLogBench({ witnesses: [witness.key], clock: { nowMs: () => nowMs } })
  const { log } = bench
  const cosign = async (size: number, atMs = nowMs) => {
    const note = log.signed(size)
    if (note === null) throw new Error('the log has begun')
    const signed = { ...note, signatures: [signedBy(witness, note.text, atMs)] }
    return await log.cosign(signed, decodeCheckpoint(note.text))
  }
  const shownAt = async () => {
    const note = log.checkpoint()
    return note === null ? null : (await verifiedSigners(note, [witness.key])).map(({ atMs }) => atMs)
  }
  log.append(policy(1), policy(2))
  await cosign(2)
  nowMs += 60_000
  expect(await cosign(2)).toEqual([witness.key.name])
  expect([log.shown(), await shownAt(), log.cosignatures().map(({ size }) => size)]).toEqual([2, [nowMs], [2]])
  log.append(policy(3))
  expect(log.shown()).toBe(2)
  await cosign(3)
  expect([log.shown(), log.cosignatures().map(({ size }) => size)]).toEqual([3, [3]])
  await expect(cosign(2)).rejects.toThrow('no new cosignature')
  expect(log.cosignatures().map(({ size }) => size)).toEqual([3])
})

// Goal: entries hold digests: whatever has a name, a time or another spelling is no entry.
test('entries', () => {
  const digest = 'ab'.repeat(32)
  const good = { format: 'strongroom/log/v1', kind: 'workload', sha256: digest }
  const bytes = (value: object) => utf8(JSON.stringify(value))
  expect(readLogEntry(bytes(good))).toEqual(good as never)
  const bad = [
    { ...good, organization: 'acme' },
    { ...good, sha256: 'acme' },
    { ...good, kind: 'name' },
    { ...good, kind: '__proto__' },
    { kind: 'workload', format: 'strongroom/log/v1', sha256: digest },
    { ...good, sha256: toHex(new Uint8Array(600)) },
  ]
  for (const value of bad) expect([value, readLogEntry(bytes(value))]).toEqual([value, null])
  expect(readLogEntry(utf8(` ${JSON.stringify(good)}`))).toBeNull()
  expect(readLogEntry(Uint8Array.of(0xff))).toBeNull()
})

test('goal: a tree that lacks hashes is a damaged database, and no new log', () => {
  using bench = openLogBench()
  bench.log.append(policy(1), policy(2), policy(3), policy(4))
  bench.store.ledger.db.run('DELETE FROM log_hashes')
  expect(() => bench.reopened()).toThrow('the transparency log lacks hashes of its tree')
})
