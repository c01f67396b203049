// Goal: `strongroom verify vtpm` passes for evidence that hardware vouches for, and every single part that is altered
// makes it fail where it is altered.

import { afterAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { simulatedAsOf, simulatedPlatform } from '../../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../../src/attest/encoding/pem.ts'
import { sha256, sha512 } from '../../../../src/attest/hash.ts'
import { encodePolicy } from '../../../../src/attest/policy/encode.ts'
import { type Policy, strictPolicy } from '../../../../src/attest/policy/policy.ts'
import { decodeHclReport, runtimeAttestationKey } from '../../../../src/attest/tpm/hcl-report.ts'
import { encodeSpki } from '../../../../src/attest/tpm/key.ts'
import { decodePublicArea } from '../../../../src/attest/tpm/public-area.ts'
import { concat, fromBase64Url, fromHex, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { akAttributes, eccSample, sized, u16 } from '../../../rigs/launch/tpm-samples.ts'
import { checksOf, expectUsageError, runHere, vectors } from '../../../rigs/program.ts'
import {
  argvOf,
  clearVtpmFiles,
  eventsOf,
  expectFailed,
  file,
  flipped,
  type Line,
  logs,
  reasonOf,
  requireBytes,
  ubuntuLog,
  verify,
} from '../../../rigs/vtpm-line.ts'

afterAll(clearVtpmFiles)

const azureVector = JSON.parse(readFileSync(join(logs, 'paravisor-bound.json'), 'utf8'))

describe('azure-hcl', () => {
  const unpadded = (text: string) => requireBytes(fromBase64Url(text.replace(/=+$/, '')))
  const hcl = unpadded(azureVector.hcl_report)
  const quote = requireBytes(fromHex(azureVector.tpm_quote.message))
  const signature = concat(u16(0x0014), u16(0x000b), sized(requireBytes(fromHex(azureVector.tpm_quote.signature))))
  const pcrs: string[] = azureVector.tpm_quote.pcrs
  const values = (changes: Record<number, string> = {}) =>
    file(`azure-pcrs-${Object.keys(changes).join()}.json`, JSON.stringify({ sha256: { ...pcrs, ...changes } }))
  const named = encodeSpki(runtimeAttestationKey(decodeHclReport(hcl).runtimeData))

  const good: Line = {
    kind: 'azure-hcl',
    report: file('hcl.bin', hcl),
    vek: file('azure-vcek.der', unpadded(azureVector.vcek)),
    quote: file('azure-quote.bin', quote),
    signature: file('azure-signature.bin', signature),
    nonce: toHex(utf8('challenge')),
    pcrs: values(),
    pcr: [`7=${pcrs[7]}`, `4=0x${pcrs[4]}`],
    'as-of': '2025-06-01',
    'any-measurement': true,
    'any-crl': true,
    'any-tcb': true,
  }

  test('goal: genuine evidence passes, in the document and in the lines', async () => {
    const { code, document, failed } = await verify(good)
    expect([code, failed]).toEqual([0, []])
    expect(document).toMatchObject({
      ok: true,
      simulated: false,
      kind: 'vtpm:paravisor-bound',
      as_of: '2025-06-01T00:00:00.000Z',
      product: 'milan',
      report: { vmpl: 0 },
      runtime_data: { 'vm-configuration': { 'secure-boot': true } },
      quote: { nonce: toHex(utf8('challenge')), signature: { scheme: 'RSASSA', hash: 'SHA-256' }, reset_count: 2 },
      pcrs: { sha256: { 23: pcrs[23] } },
      event_log: null,
    })
    const { code: textCode, stdout } = await runHere(argvOf(good))
    expect([textCode, stdout.split('\n')[0]]).toEqual([0, 'VERDICT: PASS'])
    expect(stdout).toContain('             vTPM: vtpm:paravisor-bound\n')
    expect(stdout).toContain('PCRs: PCR 4, 7 equal to --pcr; 22 more are quoted and not compared\n')
    expect(stdout.trimEnd().split('\n').length).toBeLessThanOrEqual(15)
  })

  test('goal: the measurement of the paravisor is pinned by the policy', async () => {
    const { document } = await verify(good)
    const { measurement } = document.report as { measurement: string }
    const named = (hex: string) =>
      file(
        'azure-policy.json',
        JSON.stringify(encodePolicy({ ...strictPolicy(), measurements: [requireBytes(fromHex(hex))] })),
      )
    const pinned = await verify({ ...good, policy: named(measurement), 'any-measurement': null })
    expect([pinned.code, reasonOf(pinned, 'pin-measurement')]).toEqual([0, '1 measurement, named in the policy'])
    expect(checksOf(pinned.document, 'PASS')).toContain('vtpm-measurement')
    await expectFailed({ ...good, policy: named('11'.repeat(48)) }, ['measurement', 'vtpm-evidence'])
  })

  test('goal: each altered part fails where it is altered', async () => {
    await expectFailed({ ...good, report: file('a1.bin', flipped(hcl, 0x20 + 0x2a1)) }, [
      'report-signature',
      'vtpm-evidence',
    ])
    await expectFailed({ ...good, report: file('a2.bin', flipped(hcl, 1300)) }, ['hcl-claims', 'vtpm-evidence'])
    await expectFailed({ ...good, quote: file('a3.bin', flipped(quote, 60)) }, ['tpm-quote-signature'])
    await expectFailed({ ...good, signature: file('a4.bin', flipped(signature, 100)) }, ['tpm-quote-signature'])
    await expectFailed({ ...good, nonce: toHex(utf8('challengf')) }, ['tpm-quote-nonce'])
    const other = await expectFailed({ ...good, pcrs: values({ 10: pcrs[11] ?? '' }) }, ['tpm-quote-pcrs'])
    // Without values that the TPM signed there is nothing to compare with.
    expect(checksOf(other.document, 'NOT CHECKED')).toContain('tpm-expected-pcrs')
    const few = await expectFailed({ ...good, pcrs: file('few.json', JSON.stringify({ sha256: { 0: pcrs[0] } })) }, [
      'tpm-quote-pcrs',
    ])
    expect(reasonOf(few, 'tpm-quote-pcrs')).toBe('SHA-256 PCR 1 is quoted but its value is not given')
    const bank = await expectFailed({ ...good, pcr: `7=${'00'.repeat(48)}` }, ['tpm-expected-pcrs'])
    expect(reasonOf(bank, 'tpm-expected-pcrs')).toBe('SHA-384 PCR 7: not quoted')
  })

  test('goal: the report, its chip and its firmware are judged as by verify report', async () => {
    const open = await expectFailed({ ...good, 'any-measurement': null }, ['pin-measurement', 'vtpm-evidence'])
    const old = await expectFailed({ ...good, 'any-tcb': null }, [
      'tcb-floor-snp',
      'tcb-floor-launch-snp',
      'vtpm-evidence',
    ])
    const unrevoked = await expectFailed({ ...good, 'any-crl': null }, ['vtpm-evidence'])
    // The quote was judged in none of them, so none is called genuine.
    expect([open.code, old.code, unrevoked.code]).toEqual([1, 1, 2])
    expect(reasonOf(unrevoked, 'vtpm-evidence')).toBe('the SNP report did not pass, see the lines above')
    expect(reasonOf(unrevoked, 'chain-revocation')).toContain('name one with --crl')
    const reports = join(vectors, 'reports')
    const wrong = await verify({
      ...good,
      report: join(reports, 'wrong-chip.hcl.bin'),
      vek: join(reports, 'wrong-chip.certs.pem'),
      'as-of': '2023-06-01',
    })
    expect([wrong.code, wrong.failed]).toEqual([1, expect.arrayContaining(['report-signature', 'vtpm-evidence'])])
  })

  test('goal: a policy that takes every VMPL takes none but 0 here, and one without 0 fails', async () => {
    const policy = (vmpls: Policy['vmpls']) =>
      file('vmpl.json', JSON.stringify(encodePolicy({ ...strictPolicy(), vmpls })))
    for (const vmpls of ['any', [0, 1, 2, 3]] as const)
      expect((await verify({ ...good, policy: policy(vmpls) })).code).toBe(0)
    await expectFailed({ ...good, policy: policy([1]) }, ['vmpl', 'vtpm-evidence'])
  })

  test('goal: values that nobody expected prove nothing; each that differs is named', async () => {
    const none = await expectFailed({ ...good, pcr: null }, ['pin-pcrs'])
    expect(reasonOf(none, 'pin-pcrs')).toBe(
      'no PCR value is expected: name yours with --pcr, or accept any with --any-pcrs',
    )
    const any = await runHere(argvOf({ ...good, pcr: null, 'any-pcrs': true }))
    expect([any.code, any.stdout]).toEqual([0, expect.stringContaining('any PCR values: you asked with --any-pcrs\n')])
    // A flag never loosens what --pcr says.
    const wrong = await expectFailed(
      { ...good, pcr: [`7=${pcrs[4]}`, `4=${pcrs[7]}`, `0=${pcrs[0]}`], 'any-pcrs': true },
      ['tpm-expected-pcrs'],
    )
    expect(reasonOf(wrong, 'tpm-expected-pcrs')).toBe('PCR 4, 7: not equal to --pcr')
  })

  test('goal: a log that replays to other values fails, and each PCR is named', async () => {
    const some = await expectFailed({ ...good, 'event-log': ubuntuLog, 'event-log-pcrs': '0-3,14' }, ['tpm-event-log'])
    // Two machines share Microsoft's and Canonical's parts of the boot.
    expect(reasonOf(some, 'tpm-event-log')).toBe('SHA-256: the log does not replay to PCR 0, 1')
    const all = await expectFailed({ ...good, 'event-log': ubuntuLog }, ['tpm-event-log'])
    expect(reasonOf(all, 'tpm-event-log')).toMatch(
      /^SHA-256: the log does not replay to PCR 0, 1, 4, .*, 12; name the PCRs that the log alone extends with --event-log-pcrs$/,
    )
    const right = await verify({ ...good, 'event-log': ubuntuLog, 'event-log-pcrs': '2,3,14' })
    expect([right.code, reasonOf(right, 'tpm-event-log')]).toEqual([
      0,
      expect.stringContaining('SHA-256: the log replays to 3 of the 24 quoted PCRs; it does not cover PCR 0, 1, 4'),
    ])
    expect(new Set(eventsOf(right).map(event => event.pcr))).toEqual(new Set([2, 3, 14]))
    expect(eventsOf(all)).toEqual([])
  })

  test('goal: forms of the same evidence', async () => {
    const bare = concat(...pcrs.map(hex => requireBytes(fromHex(hex))))
    const forms: Line[] = [
      { quote: file('f1.bin', sized(quote)) },
      { signature: file('f2.bin', requireBytes(fromHex(azureVector.tpm_quote.signature))) },
      { pcrs: file('f3.bin', bare) },
      { ak: file('f4.pem', toPem(named, 'PUBLIC KEY')) },
    ]
    for (const form of forms) expect([form, (await verify({ ...good, ...form })).code]).toEqual([form, 0])
    const other = (await eccSample('P-256', 'SHA-256')).spki
    await expectFailed({ ...good, ak: file('f5.der', other) }, ['vtpm-given-key'])
  })

  test('goal: files that are none of theirs, and options that say nothing here, are refused by name', async () => {
    const plain = join(vectors, 'reports/milan-v3.bin')
    const wrong: [Line, string][] = [
      [{ quote: file('w1.bin', flipped(quote, 0)) }, 'w1.bin: tpm quote: not made by a TPM'],
      [{ quote: file('w2.bin', concat(quote, Uint8Array.of(0))) }, 'w2.bin: tpm quote: trailing bytes'],
      [{ quote: file('w3.bin', new Uint8Array(5000)) }, '--quote'],
      [{ signature: file('w4.bin', signature.with(3, 4)) }, 'w4.bin: tpm: SHA-1 is refused'],
      [{ pcrs: file('w5.bin', quote) }, 'w5.bin: PCR values: '],
      [{ pcrs: file('w6.bin', new Uint8Array(65_537)) }, '65537 bytes, at most 65536 are allowed'],
      [{ report: plain }, 'milan-v3.bin: an SNP report alone names no key'],
      [{ report: file('w7.bin', hcl.with(0, 0)) }, 'w7.bin: SNP report: '],
      [{ report: null }, 'required option --report is missing'],
      [{ vek: null }, 'required option --vek is missing'],
      [{ ak: file('w8.pem', '-----BEGIN PUBLIC KEY-----\n\u00e9') }, 'w8.pem: tpm key: not a PEM public key'],
      [{ 'event-log': file('w9.bin', quote) }, 'w9.bin: event log: '],
      [{ 'event-log-pcrs': '0-7' }, 'required option --event-log is missing'],
      [{ 'event-log': ubuntuLog, 'event-log-pcrs': '7-0' }, 'It must be PCRs from 0 to 23'],
      [{ 'event-log': ubuntuLog, 'event-log-pcrs': '24' }, 'It must be PCRs from 0 to 23'],
      [{ ek: plain }, '--ek does not apply to a vTPM of kind azure-hcl'],
      [{ 'report-nonce': '00'.repeat(64) }, '--report-nonce does not apply'],
      [{ nonce: '' }, 'It must be 1 to 66 bytes'],
      [{ nonce: 'challenge' }, 'It must be 1 to 66 bytes'],
      [{ pcr: `24=${pcrs[0]}` }, 'It must be INDEX=HEX'],
      [{ pcr: `7=${'00'.repeat(20)}` }, 'It must be INDEX=HEX'],
      [{ pcr: [`7=${pcrs[7]}`, `7=${pcrs[7]}`] }, 'SHA-256 PCR 7 is named twice'],
      [{ kind: 'gcp' }, 'Allowed choices are azure-hcl, azure-tdx, svsm, host'],
    ]
    for (const [change, words] of wrong) await expectUsageError(argvOf({ ...good, ...change }), words)
  })
})

/** Files of tpm2-tools 5.4, made on a software TPM. */
const tools = join(vectors, 'tpm/tpm2-tools')
const tool = (name: string) => join(tools, name)
const toolBytes = (name: string) => new Uint8Array(readFileSync(tool(name)))

describe('svsm', async () => {
  const manifest = toolBytes('ek.pub').slice(2)
  const area = toolBytes('ak.pub').slice(2)
  const reportNonce = new Uint8Array(64).fill(0x42)
  const platform = await simulatedPlatform('genoa')
  const { ark, ask } = platform.authority.root
  const measurement = new Uint8Array(48).fill(9)
  const report = async (reportData: Uint8Array, vmpl = 0) =>
    await platform.report({ reportData, measurement, report: { vmpl, platformInfo: 0x21n } })
  const name = toHex(concat(u16(0x000b), sha256(area)))

  const good: Line = {
    kind: 'svsm',
    report: file('report.bin', await report(sha512(concat(reportNonce, manifest)))),
    vek: file('vcek.der', platform.vcek),
    'trust-simulated-root': file('root.pem', [ask, ark].map(der => toPem(der, 'CERTIFICATE')).join('')),
    'as-of': simulatedAsOf.toISOString(),
    policy: file('svsm-policy.json', JSON.stringify(encodePolicy({ ...strictPolicy(), measurements: [measurement] }))),
    'any-crl': true,
    'report-nonce': toHex(reportNonce),
    ek: file('manifest.bin', manifest),
    ak: tool('ak.pub'),
    'credential-ek': tool('ek.pub'),
    'credential-name': name,
    'credential-secret': tool('secret.bin'),
    activated: tool('activated.bin'),
    quote: tool('quote.msg'),
    signature: tool('quote.sig'),
    pcrs: tool('quote.pcrs'),
    nonce: '00112233445566778899aabbccddeeff',
    pcr: '4=9ef814b42fa0be12d197c44d3e8e03441a4b1118237658368ba1351090e556ed',
  }
  const credential: Line = {
    'credential-ek': null,
    'credential-name': null,
    'credential-secret': null,
    activated: null,
  }

  test('goal: files as tpm2-tools write them pass with a report of the SVSM over the manifest', async () => {
    const { code, document, failed } = await verify(good)
    expect([code, failed, document.simulated, document.kind]).toEqual([0, [], true, 'vtpm:svsm-vmpl0'])
    expect(checksOf(document, 'PASS')).toEqual(
      expect.arrayContaining(['vtpm-measurement', 'vtpm-endorsement-key', 'vtpm-attestation-key', 'vtpm-binding']),
    )
    for (const form of ['pcrs.values', 'pcrs.txt']) expect((await verify({ ...good, pcrs: tool(form) })).code).toBe(0)
    const pem = toPem(encodeSpki(decodePublicArea(manifest).key), 'PUBLIC KEY')
    expect((await verify({ ...good, 'credential-ek': file('ek.pem', pem) })).code).toBe(0)
    expect((await verify({ ...good, ek: tool('ek.pub'), ak: file('ak.tpmt', area) })).code).toBe(0)
  })

  test('goal: each altered part fails where it is altered', async () => {
    const cases: [Line, string[]][] = [
      [{ 'report-nonce': '43'.repeat(64) }, ['vtpm-report-data']],
      [{ ek: file('ek1.bin', flipped(manifest, manifest.length - 20)) }, ['vtpm-report-data']],
      [{ report: file('r1.bin', await report(new Uint8Array(64))) }, ['vtpm-report-data']],
      [{ report: file('r2.bin', await report(sha512(concat(reportNonce, manifest)), 2)) }, ['vmpl', 'vtpm-evidence']],
      [{ 'trust-simulated-root': null }, ['chain-certificates', 'vtpm-evidence']],
      [{ nonce: '00112233445566778899aabbccddeefe' }, ['tpm-quote-nonce']],
      [{ quote: file('q1.bin', flipped(toolBytes('quote.msg'), 55)) }, ['tpm-quote-signature', 'tpm-quote-nonce']],
      [{ activated: file('c1.bin', flipped(toolBytes('activated.bin'), 0)) }, ['vtpm-attestation-key']],
      [{ 'credential-name': `000b${'00'.repeat(32)}` }, ['vtpm-attestation-key']],
      [{ 'credential-ek': tool('ak.pem') }, ['vtpm-attestation-key']],
      [{ 'credential-ek': file('ek2.bin', flipped(manifest, 20)) }, ['vtpm-attestation-key']],
      [{ pcr: `4=${'00'.repeat(32)}` }, ['tpm-expected-pcrs']],
      [{ pcr: `8=${'00'.repeat(32)}` }, ['tpm-expected-pcrs']],
      [{ 'event-log': ubuntuLog, 'event-log-pcrs': '0,8' }, ['tpm-event-log']],
    ]
    for (const [change, failed] of cases) {
      const answer = await verify({ ...good, ...change })
      expect([change, answer.document.ok, answer.failed]).toEqual([change, false, failed])
    }
    const other = await eccSample('P-256', 'SHA-256')
    const otherArea = other.publicArea(akAttributes)
    const ak = { ak: file('ak2.pub', sized(otherArea)) }
    await expectFailed({ ...good, ...ak }, ['vtpm-attestation-key'])
    const named = { 'credential-name': toHex(concat(u16(0x000b), sha256(otherArea))) }
    await expectFailed({ ...good, ...ak, ...named }, ['tpm-quote-signature'])
  })

  test('goal: without an activated credential the verdict is not good, whatever else is', async () => {
    const { code, document, failed } = await verify({ ...good, ...credential })
    expect([code, document.ok, failed]).toEqual([2, false, []])
    expect(checksOf(document, 'NOT CHECKED')).toEqual(
      expect.arrayContaining(['vtpm-attestation-key', 'vtpm-binding', 'tpm-quote-signature', 'tpm-expected-pcrs']),
    )
    const host = { code, document, failed }
    expect(reasonOf(host, 'vtpm-attestation-key')).toContain('no credential was activated')
  })

  test('goal: what is missing, or cannot show anything, is refused by name', async () => {
    for (const name of Object.keys(credential)) {
      await expectUsageError(argvOf({ ...good, [name]: null }), `required option --${name} is missing`)
    }
    await expectUsageError(argvOf({ ...good, ak: null }), 'required option --ak is missing')
    await expectUsageError(argvOf({ ...good, ek: null }), 'required option --ek is missing')
    await expectUsageError(argvOf({ ...good, 'report-nonce': null }), 'required option --report-nonce is missing')
    await expectUsageError(argvOf({ ...good, 'report-nonce': '00' }), 'It must be 64 bytes')
    await expectUsageError(argvOf({ ...good, nonce: 'my-nonce' }), 'by `printf %s TEXT | xxd -p -c 256`')
    await expectUsageError(argvOf({ ...good, ak: tool('ak.pem') }), 'does not say what the TPM lets it do')
    await expectUsageError(argvOf({ ...good, ek: tool('secret.bin') }), 'secret.bin: tpm public area: ')
    const odd = argvOf({ ...good, 'credential-ek': tool('secret.bin') })
    await expectUsageError(odd, '--credential-ek')
    const same = { ...good, activated: good['credential-secret'] ?? null }
    await expectUsageError(argvOf(same), '--activated is the file of --credential-secret')
  })
})
