// Goal: `strongroom verify vtpm --kind host` says whether a quote is sound, and never passes; a log that was altered is
// named by its PCRs.

import { afterAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../../../../src/attest/hash.ts'
import { decodeQuote } from '../../../../src/attest/tpm/structures.ts'
import { concat, fromBase64, fromHex, toHex } from '../../../../src/base/bytes.ts'
import { akAttributes, eccSample, goodQuote, sampleNonce } from '../../../rigs/launch/tpm-samples.ts'
import { expectUsageError, runHere } from '../../../rigs/program.ts'
import {
  argvOf,
  clearVtpmFiles,
  eventsOf,
  expectFailed,
  file,
  flipped,
  type Line,
  logged,
  logs,
  reasonOf,
  requireBytes,
  ubuntuLog,
} from '../../../rigs/vtpm-line.ts'

afterAll(clearVtpmFiles)

describe('host', async () => {
  const plain = JSON.parse(readFileSync(join(logs, 'plain-tpm-quote.json'), 'utf8'))
  const quote = requireBytes(fromBase64(plain.tpm_quote.message))
  const pcrs: string[] = plain.tpm_quote.pcrs
  const good: Line = {
    kind: 'host',
    ak: file('host-ak.der', requireBytes(fromBase64(plain.ak_public))),
    quote: file('host-quote.bin', quote),
    signature: file('host-signature.bin', requireBytes(fromBase64(plain.tpm_quote.signature))),
    nonce: toHex(decodeQuote(quote).extraData),
    pcrs: file('host-pcrs.json', JSON.stringify({ sha256: { ...pcrs } })),
    pcr: `0=${pcrs[0]}`,
  }

  test('goal: a sound quote of a TPM that the host runs fails by its binding alone, with every flag that there is', async () => {
    const answer = await expectFailed(good, ['vtpm-binding'])
    expect(answer.document).toMatchObject({ kind: 'vtpm:host-untrusted', report: null, product: null })
    expect(answer.document).not.toHaveProperty('simulated')
    expect(reasonOf(answer, 'vtpm-binding')).toContain('the host runs this TPM')
    await expectFailed({ ...good, pcr: null, 'any-pcrs': true }, ['vtpm-binding'])
    const { code, stdout } = await runHere(argvOf(good))
    expect([code, stdout]).toEqual([1, expect.stringMatching(/^VERDICT: FAIL\nfailed {7}vtpm-binding: vtpm:host-untr/)])
  })

  test('goal: no report, measurement or root can be named for it', async () => {
    for (const name of ['report', 'vek', 'policy', 'trust-simulated-root', 'ek', 'activated']) {
      await expectUsageError(argvOf({ ...good, [name]: 'x' }), `--${name} does not apply to a vTPM of kind host`)
    }
    await expectUsageError(argvOf({ ...good, 'any-measurement': true }), '--any-measurement does not apply')
    await expectUsageError(argvOf({ ...good, ak: null }), 'required option --ak is missing')
  })

  test('goal: an unsound quote says so too', async () => {
    const other = await eccSample('P-256', 'SHA-256')
    await expectFailed({ ...good, ak: file('host-other.pub', other.publicArea(akAttributes)) }, [
      'vtpm-binding',
      'tpm-quote-signature',
    ])
    await expectFailed({ ...good, nonce: '00' }, ['vtpm-binding', 'tpm-quote-nonce'])
  })

  test('goal: a log that explains the quoted values passes, one that was altered names the PCR', async () => {
    const key = await eccSample('P-256', 'SHA-256')
    const bytes = new Uint8Array(readFileSync(ubuntuLog))
    const pcr = (index: number) => requireBytes(fromHex(logged[index] ?? ''))
    const signed = goodQuote('SHA-256', 'SHA-256', {
      selections: [{ bank: 0x000b, bitmap: Uint8Array.of(0xff, 0x02, 0x00) }],
      pcrDigest: sha256(concat(...[0, 1, 2, 3, 4, 5, 6, 7, 9].map(pcr))),
    })
    const line: Line = {
      ...good,
      ak: file('log-ak.der', key.spki),
      quote: file('log-quote.bin', signed),
      signature: file('log-signature.bin', await key.sign(signed)),
      nonce: toHex(sampleNonce),
      pcrs: file(
        'log-pcrs.json',
        JSON.stringify({ sha256: Object.fromEntries([0, 1, 2, 3, 4, 5, 6, 7, 9].map(at => [at, logged[at]])) }),
      ),
      pcr: null,
      'any-pcrs': true,
      'event-log': ubuntuLog,
    }
    const sound = await expectFailed(line, ['vtpm-binding'])
    expect(reasonOf(sound, 'tpm-event-log')).toStartWith('SHA-256: the log replays to 9 of the 9 quoted PCRs')
    // Data that hash to their digest, and no others: an image is measured, its path is what the log has beside it.
    expect(eventsOf(sound)).toContainEqual({
      pcr: 7,
      type: '0x4',
      digest: toHex(sha256(new Uint8Array(4))),
      data: '00000000',
    })
    expect(eventsOf(sound).some(({ type, data }) => type === '0x80000003' && data === null)).toBe(true)
    for (const { digest, data } of eventsOf(sound)) {
      if (data !== null) expect(toHex(sha256(requireBytes(fromHex(data))))).toBe(digest)
    }
    expect(new Set(eventsOf(sound).map(event => event.pcr))).toEqual(new Set([0, 1, 2, 3, 4, 5, 6, 7, 9]))
    // The digests of the first event that extends PCR 4, and of one that extends PCR 7.
    const find = (index: number) => {
      const at = bytes.findIndex(
        (_, at) =>
          bytes[at] === index &&
          [1, 2, 3].every(i => bytes[at + i] === 0) &&
          bytes[at + 8] === 3 &&
          bytes[at + 12] === 4,
      )
      return at + 12 + 2 + 20 + 2
    }
    const altered = flipped(flipped(bytes, find(4)), find(7))
    const bad = await expectFailed({ ...line, 'event-log': file('altered.bin', altered) }, [
      'vtpm-binding',
      'tpm-event-log',
    ])
    expect(reasonOf(bad, 'tpm-event-log')).toStartWith('SHA-256: the log does not replay to PCR 4, 7; name the PCRs')
    // A PCR that the log never extends has its first value.
    const zeros = new Uint8Array(32)
    const quoteOf = async (pcr17: Uint8Array) => {
      const parts = {
        selections: [{ bank: 0x000b, bitmap: Uint8Array.of(0, 8, 2) }],
        pcrDigest: sha256(concat(zeros, pcr17)),
      }
      const bytes = goodQuote('SHA-256', 'SHA-256', parts)
      return {
        ...line,
        quote: file('first-quote.bin', bytes),
        signature: file('first-signature.bin', await key.sign(bytes)),
        pcrs: file('first-pcrs.bin', concat(zeros, pcr17)),
      }
    }
    await expectFailed(await quoteOf(new Uint8Array(32).fill(0xff)), ['vtpm-binding'])
    const launched = await expectFailed(await quoteOf(zeros), ['vtpm-binding', 'tpm-event-log'])
    expect(reasonOf(launched, 'tpm-event-log')).toStartWith('SHA-256: the log does not replay to PCR 17; name')
    const more = await expectFailed({ ...line, 'event-log-pcrs': '4,8' }, ['vtpm-binding', 'tpm-event-log'])
    expect(reasonOf(more, 'tpm-event-log')).toBe('SHA-256: PCR 8 is not quoted')
  })
})
