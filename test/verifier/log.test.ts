// Goal: an entry counts only if it is in the log that the caller knows, in the tree that it saw before, as its
// witnesses saw it, not long ago; each of these fails by itself, and says what it means.

import { expect, test } from 'bun:test'
import { encodeCheckpoint } from '../../src/attest/log/checkpoint.ts'
import {
  consistencyProof,
  inclusionProof,
  type LogHash,
  leafHash,
  nodeHash,
  rootOf,
} from '../../src/attest/log/merkle.ts'
import { utf8 } from '../../src/base/bytes.ts'
import { type KnownLog, type LoggedQuestion, verifyLogged } from '../../src/verifier/log.ts'
import { newSigner, signedBy } from '../rigs/log/log-signer.ts'

const day = 86_400_000
const asOf = Date.UTC(2026, 5, 1)
const log = newSigner('log.example/a', 'ed25519')
const witness = newSigner('witness.example/w', 'cosignature')
const other = newSigner('witness.example/x', 'cosignature')
const entries = Array.from({ length: 9 }, (_, index) => utf8(`entry ${index}`))

type Tree = { readonly read: (level: number, index: number) => LogHash; readonly size: number }

function treeOf(texts: readonly Uint8Array[]): Tree {
  const read = (level: number, index: number): LogHash =>
    level === 0
      ? leafHash(texts[index] ?? new Uint8Array(0))
      : nodeHash(read(level - 1, 2 * index), read(level - 1, 2 * index + 1))
  return { read, size: texts.length }
}

const tree = treeOf(entries)
const known: KnownLog = { key: log.key, witnesses: [witness.key], quorum: 1, ageMsMax: 7 * day }

function proofOf(
  { read, size }: Tree,
  index: number,
  { origin = 'log.example/a', witnessedMs = asOf - day, otherMs = null as number | null } = {},
) {
  const text = encodeCheckpoint({ origin, size, root: rootOf(size, read), extensions: [] })
  const more = otherMs === null ? [] : [signedBy(other, text, otherMs)]
  const note = { text, signatures: [signedBy(log, text), signedBy(witness, text, witnessedMs), ...more] }
  return { index, hashes: inclusionProof(index, size, read), note }
}

async function judge(change: Partial<LoggedQuestion> = {}) {
  const proof = proofOf(tree, 4)
  const question = { entry: entries[4] as Uint8Array, proof, log: known, remembered: null, asOf, nowMs: asOf }
  const found = await verifyLogged({ ...question, ...change })
  const of = (outcome: string) => found.checks.filter(check => check.outcome === outcome).map(({ name }) => name)
  return { ...found, failed: of('fail'), open: of('not-checked') }
}

function rememberedOf({ read }: Tree, oldSize: number, newer: Tree) {
  const checkpoint = { origin: 'log.example/a', size: oldSize, root: rootOf(oldSize, read) }
  return { checkpoint, consistency: consistencyProof(oldSize, newer.size, newer.read) }
}

test('goal: an entry of the log passes, and its checkpoint is there to be remembered', async () => {
  const { ok, open, checkpoint } = await judge()
  expect([ok, open, checkpoint?.size]).toEqual([true, ['log-consistent'], 9])
  for (const oldSize of [1, 5, 8, 9]) {
    const grown = await judge({ remembered: rememberedOf(tree, oldSize, tree) })
    expect([oldSize, grown.ok, grown.open, grown.failed]).toEqual([oldSize, true, [], []])
  }
  // The tree of before needs no proof of itself.
  const same = { ...rememberedOf(tree, 9, tree), consistency: [leafHash(utf8('x'))] }
  expect((await judge({ remembered: same })).failed).toEqual([])
})

test('goal: another entry, another log and no signature fail, and nothing is remembered', async () => {
  const wrong = await judge({ entry: utf8('another') })
  expect([wrong.failed, wrong.checkpoint]).toEqual([['log-included'], null])
  expect((await judge({ proof: proofOf(tree, 5) })).failed).toEqual(['log-included'])
  expect((await judge({ proof: proofOf(tree, 4, { origin: 'log.example/b' }) })).failed).toEqual(['log-checkpoint'])
  const proof = proofOf(tree, 4)
  const [, cosigned] = proof.note.signatures
  const unsigned = { ...proof, note: { ...proof.note, signatures: cosigned === undefined ? [] : [cosigned] } }
  expect((await judge({ proof: unsigned })).failed).toEqual(['log-checkpoint'])
  expect((await judge({ proof: { ...proof, note: { ...proof.note, text: 'x\n' } } })).failed).toEqual([
    'log-checkpoint',
  ])
})

test('goal: a fork is a failure, whichever way the log went', async () => {
  const forked = treeOf(entries.with(0, utf8('for you alone')))
  for (const oldSize of [1, 5, 8, 9]) {
    const seen = { ...rememberedOf(forked, oldSize, tree) }
    expect([oldSize, (await judge({ remembered: seen })).failed]).toEqual([oldSize, ['log-consistent']])
  }
  const larger = treeOf([...entries, utf8('more')])
  expect((await judge({ remembered: rememberedOf(larger, 10, larger) })).failed).toEqual(['log-consistent'])
  const elsewhere = rememberedOf(tree, 5, tree)
  const moved = { ...elsewhere, checkpoint: { ...elsewhere.checkpoint, origin: 'log.example/b' } }
  expect((await judge({ remembered: moved })).failed).toEqual(['log-consistent'])
})

test('goal: without a witness the verdict is bad unless the caller accepts that; with one, its signature and time count', async () => {
  const none = { ...known, witnesses: [], quorum: 0 }
  const secret = await judge({ log: none })
  expect([secret.ok, secret.failed, secret.checkpoint]).toEqual([false, ['log-witnessed'], null])
  expect((await judge({ log: { ...none, unwitnessed: false } })).ok).toBe(false)
  const alone = await judge({ log: { ...none, unwitnessed: true } })
  expect([alone.ok, alone.open]).toEqual([true, ['log-consistent', 'log-witnessed', 'log-age']])
  expect((await judge({ log: { ...known, witnesses: [other.key], unwitnessed: true } })).failed).toEqual([
    'log-witnessed',
  ])
  const stranger = await judge({ log: { ...known, witnesses: [other.key] } })
  expect([stranger.failed, stranger.ok]).toEqual([['log-witnessed'], false])
  expect((await judge({ log: { ...known, witnesses: [witness.key, other.key], quorum: 2 } })).failed).toEqual([
    'log-witnessed',
  ])
  expect((await judge({ proof: proofOf(tree, 4, { witnessedMs: asOf - 8 * day }) })).failed).toEqual(['log-age'])
})

test('goal: of several witnesses as many as the quorum have to have cosigned lately, not one of them', async () => {
  const both = { ...known, witnesses: [witness.key, other.key] }
  const old = proofOf(tree, 4, { otherMs: asOf - 30 * day })
  expect((await judge({ proof: old, log: { ...both, quorum: 1 } })).failed).toEqual([])
  // In whatever order they are named, the newest counts first.
  for (const witnesses of [both.witnesses, both.witnesses.toReversed()]) {
    const { checks } = await judge({ proof: old, log: { ...both, witnesses, quorum: 1 } })
    expect(checks.find(({ name }) => name === 'log-age')).toMatchObject({
      outcome: 'pass',
      reason: 'witnessed 2026-05-31T00:00:00.000Z',
    })
  }
  const two = await judge({ proof: old, log: { ...both, quorum: 2 } })
  expect([two.failed, two.ok]).toEqual([['log-age'], false])
  expect(two.checks.find(({ name }) => name === 'log-age')?.reason).toContain('2026-05-02')
  const lately = proofOf(tree, 4, { otherMs: asOf - 6 * day })
  expect((await judge({ proof: lately, log: { ...both, quorum: 2 } })).failed).toEqual([])
})

test('goal: a cosignature from the future keeps no tree young, and a clock that is a little behind does no harm', async () => {
  const minute = 60_000
  expect((await judge({ proof: proofOf(tree, 4, { witnessedMs: asOf + 4 * minute }) })).failed).toEqual([])
  const future = await judge({ proof: proofOf(tree, 4, { witnessedMs: asOf + 365 * day }) })
  expect([future.failed, future.ok]).toEqual([['log-age'], false])
  expect(future.checks.find(({ name }) => name === 'log-age')?.reason).toContain('witness.example/w signed 2027-06-01')
  // The other one's counts.
  const log = { ...known, witnesses: [witness.key, other.key] }
  const proof = proofOf(tree, 4, { witnessedMs: asOf + 365 * day, otherMs: asOf - 8 * day })
  expect((await judge({ proof, log })).failed).toEqual(['log-age'])
  expect(
    (await judge({ proof: proofOf(tree, 4, { witnessedMs: asOf + 365 * day, otherMs: asOf - day }), log })).ok,
  ).toBe(true)
  // A verification for an earlier time may look at the log of today.
  const earlier = { asOf: asOf - 90 * day, nowMs: asOf }
  expect((await judge(earlier)).failed).toEqual([])
})

test('goal: one key under two names is one witness', async () => {
  const again = { ...witness.key, name: 'witness.example/again' }
  const text = proofOf(tree, 4).note.text
  const twice = [signedBy(log, text), signedBy(witness, text, asOf), signedBy({ ...witness, key: again }, text, asOf)]
  const proof = { ...proofOf(tree, 4), note: { text, signatures: twice } }
  const two = { ...known, quorum: 2 }
  expect((await judge({ proof, log: { ...two, witnesses: [witness.key, again] } })).failed).toEqual(['log-witnessed'])
  expect((await judge({ proof, log: { ...two, witnesses: [witness.key, witness.key] } })).failed).toEqual([
    'log-witnessed',
  ])
})

test('goal: the age has a limit to the millisecond, and the verdict says when and how long ago', async () => {
  const aged = async (ageMsMax: number) => {
    const proof = proofOf(tree, 4, { witnessedMs: asOf - 3 * day })
    const { checks } = await judge({ proof, log: { ...known, ageMsMax } })
    const { outcome, reason } = checks.find(({ name }) => name === 'log-age') ?? {}
    return [outcome, reason]
  }
  expect(await aged(3 * day)).toEqual(['pass', 'witnessed 2026-05-29T00:00:00.000Z'])
  expect(await aged(3 * day - 1)).toEqual(['fail', 'last witnessed 2026-05-29T00:00:00.000Z, more than 3 days ago'])
  expect(await aged(2 * day)).toEqual(['fail', 'last witnessed 2026-05-29T00:00:00.000Z, more than 2 days ago'])
})

test('goal: a witness may be five minutes ahead, and no second more', async () => {
  const ahead = async (seconds: number) =>
    (await judge({ proof: proofOf(tree, 4, { witnessedMs: asOf + seconds * 1000 }) })).failed
  expect(await ahead(300)).toEqual([])
  expect(await ahead(301)).toEqual(['log-age'])
  // A quorum of 0 is one of 1.
  const none = await judge({ log: { ...known, witnesses: [other.key], quorum: 0 } })
  expect(none.failed).toEqual(['log-witnessed'])
})

test('goal: with too few witnesses the age is open, which no verdict passes', async () => {
  const { checks } = await judge({ log: { ...known, witnesses: [witness.key, other.key], quorum: 2 } })
  expect(checks.filter(({ name }) => name === 'log-age' || name === 'log-witnessed')).toEqual([
    {
      name: 'log-witnessed',
      outcome: 'fail',
      reason: '1 of 2 witnesses have cosigned the checkpoint',
      required: true,
    },
    {
      name: 'log-age',
      outcome: 'not-checked',
      reason: '1 of 2 witnesses have cosigned the checkpoint',
      required: true,
    },
  ])
  const alone = await judge({ log: { ...known, witnesses: [], quorum: 0 } })
  expect(alone.checks.find(({ name }) => name === 'log-age')).toMatchObject({ outcome: 'not-checked', required: true })
})

test('goal: a checkpoint of an earlier visit of another log, and of a larger one, fails in words', async () => {
  const reasonOf = async (remembered: LoggedQuestion['remembered']) =>
    (await judge({ remembered })).checks.find(({ name }) => name === 'log-consistent')?.reason
  const earlier = rememberedOf(tree, 5, tree)
  expect(await reasonOf(earlier)).toBe('5 entries then, 9 now')
  expect(await reasonOf({ ...earlier, checkpoint: { ...earlier.checkpoint, origin: 'log.example/b' } })).toBe(
    'the earlier checkpoint is of the log log.example/b',
  )
  expect(await reasonOf({ ...earlier, checkpoint: { ...earlier.checkpoint, size: 10 } })).toBe(
    'the log has shrunk (10 entries then, 9 now): it shows you another tree than before',
  )
})
