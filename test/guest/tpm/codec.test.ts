import { describe, expect, test } from 'bun:test'
import { sha256 } from '../../../src/attest/hash.ts'
import { decodeEventLog } from '../../../src/attest/tpm/event-log.ts'
import { isDataMeasured, replayEventLog } from '../../../src/attest/tpm/event-log-verify.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import {
  activateCredential,
  createEndorsementKey,
  createPrimary,
  flushContext,
  pcrExtend,
  pcrRead,
  policySecret,
  quote,
  readActivated,
  readPcrs,
  readPrimary,
  readQuote,
  readSession,
  responseCode,
  startPolicySession,
  startup,
} from '../../../src/guest/tpm/command.codec.ts'
import { encodeEventLog, eventsOf } from '../../../src/guest/tpm/event-log.codec.ts'

const hex = (text: string) => fromHex(text.replaceAll(' ', '')) ?? new Uint8Array(0)
/** A response of this tag and code around a body. */
const response = (body: string, { tag = '8001', code = '00000000' } = {}) => {
  const rest = hex(body)
  const size = (10 + rest.length).toString(16).padStart(8, '0')
  return concat(hex(`${tag}${size}${code}`), rest)
}

describe('commands', () => {
  // Goal: byte for byte as in Part 3 of the library specification; a real TPM answered each (swtpm.slow.test.ts).
  test('as they are written', () => {
    expect(toHex(startup())).toBe('80010000000c000001440000')
    expect(toHex(flushContext(0x80000001))).toBe('80010000000e0000016580000001')
    expect(toHex(pcrRead([8, 9]))).toBe('8001000000140000017e00000001000b03000300')
    const authorization = '00000009 40000009 0000 00 0000'
    expect(pcrExtend(9, new Uint8Array(32).fill(0xab))).toEqual(
      hex(`8002 00000041 00000182 00000009 ${authorization} 00000001 000b ${'ab'.repeat(32)}`),
    )
    expect(quote(0x80000000, { nonce: Uint8Array.of(1, 2), pcrs: [0, 23] })).toEqual(
      hex(`8002 0000002b 00000158 80000000 ${authorization} 0002 0102 0010 00000001 000b 03 010080`),
    )
    // fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, restricted, sign; ECDSA with SHA-256 on P-256.
    const area = '0023 000b 00050472 0000 0010 0018 000b 0003 0010 0000 0000'
    expect(createPrimary()).toEqual(
      hex(`8002 00000041 00000131 4000000b ${authorization} 0004 0000 0000 0018 ${area} 0000 00000000`),
    )
  })

  // Goal: the same for those of a credential; the template is L-1 of the EK Credential Profile, the session continues,
  // and each handle has its authorization.
  test('of an activation', () => {
    const authorization = '00000009 40000009 0000 00 0000'
    const policy = '0020 837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa'
    const area = `0001 000b 000300b2 ${policy} 0006 0080 0043 0010 0800 00000000 0100 ${'00'.repeat(256)}`
    expect(createEndorsementKey()).toEqual(
      hex(`8002 00000163 00000131 4000000b ${authorization} 0004 0000 0000 013a ${area} 0000 00000000`),
    )
    expect(startPolicySession()).toEqual(
      hex(`8001 0000002b 00000176 40000007 40000007 0010 ${'00'.repeat(16)} 0000 01 0010 000b`),
    )
    expect(policySecret(0x03000000)).toEqual(
      hex(`8002 00000029 00000151 4000000b 03000000 ${authorization} 0000 0000 0000 00000000`),
    )
    const handles = { key: 0x80000000, endorsementKey: 0x80000001, session: 0x03000000 }
    const both = '00000012 40000009 0000 00 0000 03000000 0000 01 0000'
    expect(activateCredential(handles, hex('aabb'))).toEqual(
      hex(`8002 0000002a 00000147 80000000 80000001 ${both} aabb`),
    )
    expect(readSession(response('03000000 0001 aa'))).toBe(0x03000000)
    expect(readActivated(response('00000004 0002 aabb', { tag: '8002' }))).toEqual(hex('aabb'))
    expect(() => readActivated(response('00000004 ffff aabb'))).toThrow('a field of 65535 bytes')
    expect(() => readActivated(response('', { code: '000001df' }))).toThrow('TPM2_ActivateCredential: TPM_RC 0x1df')
    expect(() => readSession(response('', { code: '00000903' }))).toThrow('TPM2_StartAuthSession: TPM_RC 0x903')
  })

  // Goal: a TPM that lies about lengths, answers something else or fails is refused with the command's name, and never
  // read past its end.
  test('and their responses', () => {
    expect(responseCode(response('', { code: '00000922' }))).toBe(0x922)
    for (const bad of [
      new Uint8Array(0),
      response('').subarray(1),
      concat(response(''), hex('00')),
      hex('1234 0000000a 00000000'),
    ])
      expect(() => responseCode(bad)).toThrow(/tpm response/)
    expect(() => readPrimary(response('', { code: '00000184' }))).toThrow('TPM2_CreatePrimary: TPM_RC 0x184')
    expect(() => readPrimary(response('80000000 00000004 ffff 00'))).toThrow('a field of 65535 bytes')
    expect(readQuote(response('00000005 0001 aa bbcc 00', { tag: '8002' }))).toEqual({
      quote: hex('aa'),
      signature: hex('bbcc'),
    })
    for (const size of ['00000002', '000000ff', 'ffffffff'])
      expect(() => readQuote(response(`${size} 0001 aa bbcc`, { tag: '8002' }))).toThrow('size of the parameters')
    const values = (selected: string, ...all: string[]) =>
      response(`00000007 ${selected} ${all.length.toString(16).padStart(8, '0')} ${all.join('')}`)
    const [eight, nine] = ['08', '09'].map(byte => `0020${byte.repeat(32)}`)
    const selected = '00000001 000b 03 000300'
    expect([...readPcrs(values(selected, `${eight}`, `${nine}`), [9, 8]).keys()]).toEqual([8, 9])
    for (const bad of [
      values('00000001 000b 03 000100', `${eight}`),
      values(selected, `${eight}`),
      values(selected, `${eight}`, `0014${'09'.repeat(20)}`),
      concat(values(selected, `${eight}`, `${nine}`)).subarray(0, 60),
    ])
      expect(() => readPcrs(bad, [8, 9])).toThrow(/TPM2_PCR_Read|tpm response/)
  })
})

// Goal: the library reads the log, its digests are of its data, and its replay is one extension of each PCR.
test('the event log', () => {
  const measured = { commandLine: utf8('console=ttyS0'), image: utf8('{"name":"instance"}\n') }
  const log = decodeEventLog(encodeEventLog(measured))
  expect(log.banks).toEqual(['SHA-256'])
  expect(log.events.map(({ pcr, type, data }) => [pcr, type, data])).toEqual([
    [8, 13, measured.commandLine],
    [9, 13, measured.image],
  ])
  expect(log.events.every(event => isDataMeasured(event, 'SHA-256'))).toBe(true)
  const replayed = replayEventLog(log, 'SHA-256')
  for (const { pcr, digest } of eventsOf(measured))
    expect(replayed.get(pcr)).toEqual(sha256(concat(new Uint8Array(32), digest)))
})
