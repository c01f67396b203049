// Goal: a snapshot counts only if the instance's host key signed it, for this instance, and it is not older than what
// this machine has seen; a gap is fine, a fork never.

import { expect, test } from 'bun:test'
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { canonicalJson } from '../../../src/base/canonical-json.ts'
import { judgeSnapshot } from '../../../src/client/snapshots/judge.ts'
import type { SnapshotHeader } from '../../../src/contract/snapshot.ts'

const hostname = 'k3v9x2ma.acme.agents.example'
const digest = (name: string) => createHash('sha256').update(name).digest('hex')
const string = (bytes: Uint8Array | string) => {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(Buffer.from(bytes).length)
  return Buffer.concat([length, Buffer.from(bytes)])
}

function keyPair() {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const raw = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url')
  const blob = Buffer.concat([string('ssh-ed25519'), string(raw)])
  return { privateKey, blob, line: `ssh-ed25519 ${blob.toString('base64')}` }
}
const own = keyPair()
const foreign = keyPair()

/** PROTOCOL.sshsig, written a second time. */
function sshsig(
  message: string,
  { privateKey, blob }: { privateKey: KeyObject; blob: Buffer },
  namespace: string,
): string {
  const hash = createHash('sha512').update(message).digest()
  const signed = Buffer.concat([Buffer.from('SSHSIG'), string(namespace), string(''), string('sha512'), string(hash)])
  const signature = Buffer.concat([string('ssh-ed25519'), string(sign(null, signed, privateKey))])
  const version = Buffer.from([0, 0, 0, 1])
  const body = [string(blob), string(namespace), string(''), string('sha512'), string(signature)]
  const base64 = Buffer.concat([Buffer.from('SSHSIG'), version, ...body]).toString('base64')
  return `-----BEGIN SSH SIGNATURE-----\n${base64.replace(/.{70}/g, '$&\n')}\n-----END SSH SIGNATURE-----\n`
}

function snapshot(
  change: Partial<SnapshotHeader> = {},
  { key = own, namespace = 'strongroom-snapshot', text = '' } = {},
) {
  const facts: SnapshotHeader = {
    format: 'strongroom/snapshot/v1',
    hostname,
    number: 3,
    previous: digest('2'),
    rootHash: null,
    ageHeader: digest('header'),
    sha256: digest('3'),
    ...change,
  }
  const header = text === '' ? canonicalJson(facts) : text
  return { header, signature: sshsig(header, key, namespace) }
}
const seen = (newest: { number: number; sha256: string } | null) => ({ hostname, hostKey: own.line, newest })
function outcome(
  given: ReturnType<typeof snapshot>,
  newest: { number: number; sha256: string } | null,
  isOlderAccepted = false,
) {
  try {
    return judgeSnapshot(given, seen(newest), { isOlderAccepted }).number
  } catch (error) {
    return String((error as Error).message)
  }
}

test('goal: the first, the same, the next and a later one after a gap count', () => {
  expect(outcome(snapshot(), null)).toBe(3)
  expect(outcome(snapshot(), { number: 3, sha256: digest('3') })).toBe(3)
  expect(outcome(snapshot(), { number: 2, sha256: digest('2') })).toBe(3)
  expect(outcome(snapshot(), { number: 1, sha256: digest('1') })).toBe(3)
})

test('goal: another key, namespace, instance, header or format is refused', () => {
  expect(outcome(snapshot({}, { key: foreign }), null)).toContain('not made by it')
  expect(outcome(snapshot({}, { namespace: 'file' }), null)).toContain('not made by it')
  expect(outcome({ ...snapshot(), header: snapshot({ number: 4 }).header }, null)).toContain('not made by it')
  expect(outcome(snapshot({ hostname: 'aaaaaaaa.acme.agents.example' }), null)).toContain('is one of aaaaaaaa')
  expect(outcome(snapshot({}, { text: ` ${snapshot().header}` }), null)).toContain('canonical')
  expect(outcome(snapshot({}, { text: '{"format":"strongroom/snapshot/v2"}' }), null)).toContain(
    'header of the snapshot',
  )
})

test('goal: an older one is refused unless it is wanted; a fork is refused even then', () => {
  const older = outcome(snapshot(), { number: 4, sha256: digest('4') })
  expect(older).toContain('is older than 4')
  expect(outcome(snapshot(), { number: 4, sha256: digest('4') }, true)).toBe(3)
  for (const isOlderAccepted of [false, true]) {
    expect(outcome(snapshot(), { number: 3, sha256: digest('other') }, isOlderAccepted)).toContain('differs')
    expect(outcome(snapshot(), { number: 2, sha256: digest('other') }, isOlderAccepted)).toContain('does not follow')
    expect(outcome(snapshot({}, { key: foreign }), { number: 4, sha256: digest('4') }, isOlderAccepted)).toContain(
      'not made',
    )
  }
})
