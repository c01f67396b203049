// Goal: what a guest sent is signed by its SSH host key, under a number that never comes twice, with the digest of the
// one before; no failure makes a signature.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { isSignedBy } from '../../../src/client/snapshots/ssh-signature.ts'
import { snapshotNamespace } from '../../../src/contract/snapshot.ts'
import type { ClaimRecord } from '../../../src/guest/claim-record.ts'
import { createSnapshots } from '../../../src/guest/snapshots/snapshot.ts'
import { run } from '../../../src/linux/command.ts'
import { readSshKey } from '../../../src/verifier/ssh-key.ts'

const claim = {
  hostname: 'k3v9x2ma.acme.agents.example',
  document: { network: { gateway: '169.254.88.1' } },
} as unknown as ClaimRecord
const to = { port: 8446, token: 'ab'.repeat(32) }
const [whole, header, files] = ['01'.repeat(32), '02'.repeat(32), '03'.repeat(32)]

let directory = ''
const at = (name: string) => join(directory, name)
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'srt-guest-'))
  Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', at('host_key')])
  writeFileSync(at('cmdline'), `quiet strongroom.root_hash=${'a1'.repeat(32)} x=1`)
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const paths = () => ({ commandLine: at('cmdline'), snapshotRecord: at('record'), sshHostKey: at('host_key') })
/** The program writes its arguments and input to a file, and prints the rest of its own first argument. */
function snapshots(prints: string, code = 0) {
  const script = `echo "$@" >>${at('calls')}; cat >>${at('calls')}; printf '%s' '${prints}'; exit ${code}`
  const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  return createSnapshots({ paths: paths(), owner, argv: ['sh', '-c', script, 'program'], run, log: silentLogger })
}
const numberIn = (text: string) => JSON.parse(text) as Record<string, unknown>

test('goal: the header states number, digests, host name and root hash, and ssh-keygen -Y sign has signed exactly it', async () => {
  const first = await snapshots(`${whole} ${header} ${files}\n`).send(to, claim)
  if (!first.ok) throw new Error(first.message)
  expect(numberIn(first.snapshot.header)).toEqual({
    format: 'strongroom/snapshot/v1',
    hostname: claim.hostname,
    number: 1,
    previous: null,
    rootHash: 'a1'.repeat(32),
    ageHeader: header,
    sha256: whole,
  })
  const { blob: key } = readSshKey(readFileSync(at('host_key.pub'), 'utf8'))
  const { signature: armored } = first.snapshot
  expect(isSignedBy({ armored, message: first.snapshot.header, namespace: snapshotNamespace, key })).toBeTrue()
  // The token is on standard input alone.
  expect(readFileSync(at('calls'), 'utf8')).toBe(`send any 169.254.88.1 8446\n${to.token}\n`)
  expect(statSync(at('record')).mode & 0o777).toBe(0o600)
  const second = await snapshots(`${header} ${whole} ${files}\n`).send(to, claim)
  expect(second.ok && numberIn(second.snapshot.header)).toMatchObject({ number: 2, previous: whole, sha256: header })
})

test('goal: a program that fails or prints anything else makes no signature and uses no number', async () => {
  for (const prints of [
    '',
    `${whole}\n`,
    `${whole} ${header}\n`,
    `${whole} ${header} ${files} more\n`,
    `${whole} ${files} nothing\n`,
  ]) {
    expect(await snapshots(prints).send(to, claim)).toMatchObject({ ok: false, code: 'failed' })
  }
  await expect(snapshots(`${whole} ${header} ${files}\n`, 1).send(to, claim)).rejects.toThrow('exit code 1')
  const next = await snapshots(`${whole} ${header} ${files}\n`).send(to, claim)
  expect(next.ok && numberIn(next.snapshot.header)).toMatchObject({ number: 1, previous: null })
})

test('goal: a number is spent before its signature, so that no two signatures share one', async () => {
  rmSync(at('host_key'))
  await expect(snapshots(`${whole} ${header} ${files}\n`).send(to, claim)).rejects.toThrow('ssh-keygen')
  Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', at('host_key')])
  const next = await snapshots(`${header} ${whole} ${files}\n`).send(to, claim)
  expect(next.ok && numberIn(next.snapshot.header)).toMatchObject({ number: 2, previous: whole })
})

test('goal: by schedule nothing is sent while the files are those of the last snapshot; a command sends them again', async () => {
  const first = await snapshots(`${whole} ${header} ${files}\n`).send(to, claim, header)
  expect(first.ok).toBeTrue()
  expect(await snapshots('unchanged\n').send(to, claim, whole)).toMatchObject({ ok: false, code: 'unchanged' })
  // The host has lost that one, and keeps an earlier one.
  expect((await snapshots(`${whole} ${header} ${files}\n`).send(to, claim, header)).ok).toBeTrue()
  const second = await snapshots(`${header} ${whole} ${files}\n`).send(to, claim)
  expect(second.ok && numberIn(second.snapshot.header)).toMatchObject({ number: 3, previous: whole })
  const calls = readFileSync(at('calls'), 'utf8')
    .split('\n')
    .filter(line => line.startsWith('send'))
  // Without an earlier one, of these files, of files that the host does not keep, by command.
  expect(calls.map(line => line.split(' ')[1])).toEqual(['any', files, 'any', 'any'])
})

test('goal: nothing without a claim, one at a time, and few fetches', async () => {
  expect(await snapshots('').send(to, null)).toMatchObject({ ok: false, code: 'unclaimed' })
  const pending = Promise.withResolvers<{ stdout: string; stderr: string }>()
  const calls: string[][] = []
  const lines: unknown[] = []
  const slow = createSnapshots({
    paths: paths(),
    owner: { uid: 0, gid: 0 },
    argv: ['program'],
    log: { ...silentLogger, warn: (...line) => void lines.push(line) },
    run: argv => {
      calls.push([...argv])
      return pending.promise
    },
  })
  const sending = slow.send(to, claim)
  expect(await slow.send(to, claim)).toMatchObject({ ok: false, message: 'snapshot: another one is under way' })
  expect(slow.fetch(to, 'p'.repeat(16), null)).toMatchObject({ ok: false, code: 'unclaimed' })
  const fetches = Array.from({ length: 5 }, (_, at) => slow.fetch(to, `${at}`.repeat(16), claim).ok)
  expect(fetches).toEqual([true, true, true, true, false])
  expect(calls.slice(0, 2)).toEqual([
    ['program', 'send', 'any', '169.254.88.1', '8446'],
    ['program', 'fetch', '0'.repeat(16), '169.254.88.1', '8446'],
  ])
  pending.reject(new Error('ended'))
  await expect(sending).rejects.toThrow('ended')
  await Bun.sleep(1)
  // The owner's session shows an early end alone.
  expect(lines).toEqual(Array(4).fill(['a snapshot was not fetched whole', { reason: 'ended' }]))
  expect(slow.fetch(to, 'q'.repeat(16), claim).ok).toBeTrue()
})
