// The guest's TPM code against a real TPM 2.0: swtpm, over its socket.

import { describe, expect, test } from 'bun:test'
import {
  decodeTpmEvidence,
  encodeTpmEvidence,
  type TpmEvidence,
  verifyTpmEvidence,
} from '../../../src/attest/tpm/evidence.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { pcrExtend, pcrRead, readPcrs, responseCode } from '../../../src/guest/tpm/command.codec.ts'
import { createTpm } from '../../../src/guest/tpm/tpm.ts'
import { startSwtpm, type TestTpm } from '../../rigs/launch/swtpm.ts'

const measured = { commandLine: utf8('console=ttyS0 strongroom.root_hash=ab'), image: utf8('{"name":"instance"}') }
const nonce = new Uint8Array(32).fill(7)
const never = async () => Promise.reject(new Error('there is no SVSM'))

function guestOf({ device }: Pick<TestTpm, 'device'>, what = measured) {
  return createTpm({ device, measured: what, svsm: Promise.resolve(null), clock: systemClock, log: silentLogger })
}

async function evidenceOf(tpm: ReturnType<typeof guestOf>, over = nonce): Promise<TpmEvidence> {
  const answer = await tpm.evidence(over)
  if (answer.kind !== 'evidence') throw new Error(JSON.stringify(answer))
  return decodeTpmEvidence(answer.bytes)
}

async function failed(evidence: TpmEvidence, over = nonce, what: typeof measured | 'any' = measured) {
  const found = await verifyTpmEvidence(evidence, { nonce: over, measured: what, binding: never, activate: 'offline' })
  expect(found.ok).toBe(false)
  expect(found.kind).toBe('vtpm:host-untrusted')
  // A check for which the TPM is not asked is never good, and says so (activation.slow.test.ts and
  // verify/tpm.slow.test.ts ask it).
  const tied = found.checks.find(check => check.name === 'vtpm-attestation-key')
  expect(tied).toMatchObject({ outcome: 'not-checked', required: true })
  expect(tied?.reason).toContain('no credential was activated')
  return found.checks.filter(check => check.outcome !== 'pass' && check !== tied).map(check => check.name)
}

describe('a TPM of the host', () => {
  // Goal: quote, key, values and log of a real TPM hold together in the library's eyes, and the binding still fails the
  // verdict.
  test('gives evidence in which all but the binding is good', async () => {
    await using tpm = await startSwtpm()
    const evidence = await evidenceOf(guestOf(tpm))
    expect(await failed(evidence)).toEqual(['vtpm-binding'])
    // 64 bytes, too: a REPORT_DATA.
    const long = new Uint8Array(64).fill(9)
    expect(await failed(await evidenceOf(guestOf(tpm), long), long)).toEqual(['vtpm-binding'])
  })

  // Goal: another nonce, other values, another log or command line, and another key each fail their own check.
  test('does not vouch for anything else', async () => {
    await using tpm = await startSwtpm()
    await using other = await startSwtpm()
    const evidence = await evidenceOf(guestOf(tpm))
    const foreign = await evidenceOf(guestOf(other))
    const changed = (pcr: number) => new Map([...evidence.pcrs, [pcr, new Uint8Array(32).fill(1)]])
    expect(await failed(evidence, new Uint8Array(32).fill(8))).toEqual(['vtpm-binding', 'tpm-quote-nonce'])
    expect(await failed({ ...evidence, key: foreign.key })).toEqual(['vtpm-binding', 'tpm-quote-signature'])
    expect(await failed({ ...evidence, pcrs: changed(8) })).toEqual([
      ...['vtpm-binding', 'tpm-quote-pcrs', 'tpm-event-log', 'tpm-measured'],
    ])
    expect(await failed({ ...evidence, pcrs: changed(10) })).toEqual(['vtpm-binding', 'tpm-quote-pcrs'])
    expect(await failed(evidence, nonce, { ...measured, commandLine: utf8('init=/bin/sh') })).toEqual([
      ...['vtpm-binding', 'tpm-measured'],
    ])
    const log = Uint8Array.from(evidence.log)
    log[log.length - 40] = (log[log.length - 40] ?? 0) ^ 1
    expect((await failed({ ...evidence, log })).length).toBeGreaterThanOrEqual(1)
  })

  // Goal: an agent that starts again measures nothing twice, and what somebody else has extended shows.
  test('is extended once a boot', async () => {
    await using tpm = await startSwtpm()
    const first = await evidenceOf(guestOf(tpm))
    const second = await evidenceOf(guestOf(tpm))
    expect(toHex(second.pcrs.get(8) ?? nonce)).toBe(toHex(first.pcrs.get(8) ?? nonce))
    expect(toHex(second.key)).toBe(toHex(first.key))
    expect(responseCode(await tpm.transmit(pcrExtend(9, nonce)))).toBe(0)
    expect(readPcrs(await tpm.transmit(pcrRead([9, 8])), [8, 9]).size).toBe(2)
    expect(await failed(await evidenceOf(guestOf(tpm)))).toEqual(['vtpm-binding', 'tpm-event-log', 'tpm-measured'])
  })

  // Goal: simultaneous clients are served one after the other or refused, never mixed up; a dead TPM is reported at
  // once.
  test('serves in turns, and its end is told', async () => {
    await using tpm = await startSwtpm()
    const guest = guestOf(tpm)
    const nonces = Array.from({ length: 12 }, (_, at) => new Uint8Array(32).fill(at + 1))
    const answers = await Promise.all(nonces.map(nonce => guest.evidence(nonce)))
    expect(
      answers.filter(answer => answer.kind === 'failed').map(answer => answer.kind === 'failed' && answer.reason),
    ).toEqual(
      Array(answers.length - answers.filter(answer => answer.kind === 'evidence').length).fill(
        'too many concurrent requests; try again',
      ),
    )
    for (const [at, answer] of answers.entries()) {
      if (answer.kind !== 'evidence') continue
      expect(await failed(decodeTpmEvidence(answer.bytes), nonces[at])).toEqual(['vtpm-binding'])
    }
    expect(answers.filter(answer => answer.kind === 'evidence').length).toBeGreaterThanOrEqual(7)
    await tpm.kill()
    expect(await guest.evidence(nonce)).toEqual({ kind: 'failed', reason: 'swtpm has closed' })
  })

  // Goal: decoded evidence encodes to itself; a changed byte is refused or fails a check, except where no quote covers
  // it: a log's own head, and properties of a key that nobody vouches for anyway.
  test('evidence encodes to itself', async () => {
    await using tpm = await startSwtpm()
    const evidence = await evidenceOf(guestOf(tpm))
    const bytes = encodeTpmEvidence(evidence)
    expect(bytes.length).toBeLessThan(2_048)
    expect(encodeTpmEvidence(decodeTpmEvidence(bytes))).toEqual(bytes)
    const spans = [evidence.log, evidence.key].map(part => [Buffer.from(bytes).indexOf(part), part.length] as const)
    const uncovered = (at: number) => spans.some(([from, length]) => at >= from && at < from + length)
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Uint8Array.from(bytes)
      changed[at] = (changed[at] ?? 0) ^ 1
      let names: string[] = ['refused']
      try {
        const read = decodeTpmEvidence(changed)
        names = (await verifyTpmEvidence(read, { nonce, measured, binding: never, activate: 'offline' })).checks
          .filter(check => check.outcome === 'fail')
          .map(check => check.name)
      } catch (error) {
        expect(String(error)).toContain('Malformed')
      }
      if (!uncovered(at)) expect(names).not.toEqual(['vtpm-binding'])
    }
  })
})
