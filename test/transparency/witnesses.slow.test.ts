// Goal: a witness gets each new tree with a proof that it verifies by itself; what it says no to, lies about or never
// ends is bounded and changes nothing, and the operator can read why.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { openLogBench } from '../../scripts/rigs/transparency.ts'
import { until } from '../../scripts/rigs/until.ts'
import { decodeCheckpoint, verifiedSigners } from '../../src/attest/log/checkpoint.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { LogFact } from '../../src/contract/http/log-entry.ts'
import { openEd25519Key } from '../../src/host/ed25519-key.ts'
import { fetchDirectly } from '../../src/linux/net/outgoing.ts'
import { Witnesses } from '../../src/transparency/witnesses.ts'
import { signedBy } from '../rigs/log/log-signer.ts'
import { startWitness } from '../rigs/log/witness-server.ts'

const policy = (n: number): LogFact => ({ kind: 'verifier-policy', sha256: n.toString(16).padStart(64, '0') })

async function open({ clock = systemClock, atMs = () => clock.nowMs() }: { clock?: Clock; atMs?: () => number } = {}) {
  const undo = new AsyncDisposableStack()
  const plain = undo.use(openLogBench({ begins: false }))
  const key = openEd25519Key(`${plain.directory}/log-key.pem`, { what: 'key', remedy: 'mend it' })
  const server = undo.use(startWitness(key, atMs))
  const log = plain.reopened({ witnesses: [server.signer.key], clock })
  log.begin()
  const witnesses = new Witnesses({
    log,
    witnesses: [{ key: server.signer.key, url: server.url }],
    clock,
    logger: silentLogger,
    send: fetchDirectly,
  })
  undo.defer(() => witnesses.stop())
  const problem = () => witnesses.problem(server.signer.key.name)
  return { log, server, witnesses, problem, bench: plain, [Symbol.asyncDispose]: () => undo.disposeAsync() }
}

test('goal: each tree is cosigned after its entries, and shown with the cosignature', async () => {
  await using rig = await open()
  const { log, server, witnesses } = rig
  witnesses.start()
  for (const size of [1, 2, 3, 6]) {
    log.append(...Array.from({ length: size }, (_, n) => policy(n)))
    await until(`${size} entries are shown`, 15_000, () => log.shown() === size)
  }
  const note = log.checkpoint()
  if (note === null) throw new Error('it is shown')
  expect(await verifiedSigners(note, [server.signer.key])).toMatchObject([{ key: { type: 'cosignature' } }])
  expect(server.seen.get(decodeCheckpoint(note.text).origin)?.size).toBe(6)
  expect([new Set(server.answers), rig.problem()]).toEqual([new Set([200]), null])
})

test('goal: a witness that has seen more than this host knows says which size, and is asked again from there', async () => {
  await using rig = await open()
  const { log, server, witnesses } = rig
  log.append(policy(1), policy(2))
  const tree = decodeCheckpoint(log.signed(1)?.text ?? '')
  server.seen.set(tree.origin, { size: 1, root: Buffer.from(tree.root).toString('base64') })
  witnesses.start()
  await until('it is shown', 15_000, () => log.shown() === 2)
  expect(server.answers).toEqual([409, 200])
})

test('goal: a tree that has not grown is cosigned anew when its cosignature is 12 hours old, and no earlier', async () => {
  const clock = createManualClock()
  await using rig = await open({ clock })
  const { log, server, witnesses } = rig
  const cosignedAtMs = () => log.cosignatures().map(({ size, atMs }) => [size, atMs - startMs])
  const startMs = clock.nowMs()
  log.append(policy(1), policy(2))
  witnesses.start()
  await until('it is shown', 15_000, () => log.shown() === 2)
  for (const leftMs of [60_000, 1]) {
    clock.set(startMs + 12 * 3_600_000 - leftMs - 60_000)
    await clock.elapse(60_000)
    expect([leftMs, server.answers, cosignedAtMs()]).toEqual([leftMs, [200], [[2, 0]]])
  }
  clock.set(startMs + 12 * 3_600_000 - 60_000)
  await clock.elapse(60_000)
  await until('it was asked again', 15_000, () => server.answers.length === 2)
  await until('it is taken', 15_000, () => cosignedAtMs()[0]?.[1] === 12 * 3_600_000)
  expect([server.answers, cosignedAtMs(), rig.problem()]).toEqual([[200, 200], [[2, 12 * 3_600_000]], null])
})

test('goal: a witness that has seen this very tree, of which this host knows nothing, cosigns it again', async () => {
  await using rig = await open()
  const { log, server, witnesses } = rig
  log.append(policy(1), policy(2))
  const tree = decodeCheckpoint(log.signed(2)?.text ?? '')
  server.seen.set(tree.origin, { size: 2, root: Buffer.from(tree.root).toString('base64') })
  witnesses.start()
  await until('it is shown', 15_000, () => log.shown() === 2)
  expect([server.answers, rig.problem()]).toEqual([[409, 200], null])
})

test('goal: a witness that has seen another tree of this size is not asked again, and nothing is shown', async () => {
  await using rig = await open()
  const { log, server, witnesses } = rig
  log.append(policy(1), policy(2))
  const { origin } = decodeCheckpoint(log.signed(2)?.text ?? '')
  server.seen.set(origin, { size: 2, root: Buffer.alloc(32).toString('base64') })
  witnesses.start()
  await until('there is a problem', 15_000, () => rig.problem() !== null)
  expect([server.answers, rig.problem(), log.shown()]).toEqual([[409, 422], 'it answers 422: ', 0])
})

// Goal: whatever comes back, nothing is shown for it, and the operator reads why.
test.each([
  ['a larger tree: entries were lost', () => new Response('9\n', { status: 409 }), 'entries were lost'],
  ['a conflict without a size', () => new Response('9e3', { status: 409 }), 'not with a size'],
  ['no', () => new Response('who are you?\u001b[2J', { status: 403 }), 'it answers 403: who are you?\\x1b[2J'],
  ['a redirect', () => Response.redirect('http://127.0.0.1:9/', 302), 'it answers 302'],
  ['too much', () => new Response('x'.repeat(70_000)), 'more than 65536 bytes'],
  ['no signature', () => new Response('\n'), 'a line that is no signature'],
])('a witness that answers with %s', async (_, answer, problem) => {
  await using rig = await open()
  const { log, server, witnesses } = rig
  server.answer = answer
  log.append(policy(1))
  witnesses.start()
  await until('there is a problem', 15_000, () => rig.problem() !== null)
  expect(rig.problem()).toContain(problem)
  expect(log.shown()).toBe(0)
})

test('goal: a cosignature of another tree, of another witness or from the future shows nothing', async () => {
  await using rig = await open()
  const { log, server, witnesses, bench } = rig
  log.append(policy(1), policy(2))
  const text = (size: number) => log.signed(size)?.text ?? ''
  const line = (of: string, atMs: number) => {
    const { name, keyId, signature } = signedBy(server.signer, of, atMs)
    return `\u2014 ${name} ${Buffer.concat([keyId, signature]).toString('base64')}\n`
  }
  const lines = [line(text(1), systemClock.nowMs()), line(text(2), systemClock.nowMs() + 3_600_000)]
  server.answer = () => new Response(lines[server.answers.length % 2])
  witnesses.start()
  await until('both were answered', 10_000, () => server.answers.length >= 2)
  expect([log.shown(), bench.reopened().shown()]).toEqual([0, 0])
  expect(rig.problem()).toContain('no new cosignature')
})
