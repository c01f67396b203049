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

function proofOf({ read, size }: Tree, index: number, { origin = 'log.example/a', witnessedMs = asOf - day } = {}) {
  const text = encodeCheckpoint({ origin, size, root: rootOf(size, read), extensions: [] })
  const note = { text, signatures: [signedBy(log, text), signedBy(witness, text, witnessedMs)] }
  return { index, hashes: inclusionProof(index, size, read), note }
}

async function judge(change: Partial<LoggedQuestion> = {}) {
  const question = { entry: entries[4] as Uint8Array, proof: proofOf(tree, 4), log: known, remembered: null, asOf }
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
  expect((await judge({ remembered: rememberedOf(tree, 5, tree) })).open).toEqual([])
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

test("goal: without a witness the verdict says that it is the owner's word; with one, its signature and time count", async () => {
  const alone = await judge({ log: { ...known, witnesses: [], quorum: 0 } })
  expect([alone.ok, alone.open]).toEqual([true, ['log-consistent', 'log-witnessed', 'log-age']])
  const stranger = await judge({ log: { ...known, witnesses: [other.key] } })
  expect([stranger.failed, stranger.ok]).toEqual([['log-witnessed'], false])
  expect((await judge({ log: { ...known, witnesses: [witness.key, other.key], quorum: 2 } })).failed).toEqual([
    'log-witnessed',
  ])
  expect((await judge({ proof: proofOf(tree, 4, { witnessedMs: asOf - 8 * day }) })).failed).toEqual(['log-age'])
})
