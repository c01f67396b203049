// The second line, over a real TPM (swtpm), as the host runs one and as an SVSM would: the SVSM itself is a stand-in, its report simulated.

import { describe, expect, test } from 'bun:test'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { sha512 } from '../../../src/attest/hash.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { concat, toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { TpmReply } from '../../../src/guest/tpm/socket.ts'
import { createTpm, type SvsmService } from '../../../src/guest/tpm/tpm.ts'
import { judgeHardware } from '../../../src/guest/verify/hardware.ts'
import { isGood, LINES, lineOf } from '../../../src/guest/verify/line.ts'
import { judgeTpm, type TpmQuestion } from '../../../src/guest/verify/tpm.ts'
import { fieldsOf, measurement, operatorKey, sampleReceipt } from '../../rigs/receipt-samples.ts'
import { simulatedAsOf, simulatedPlatform } from '../../rigs/simulated-platform.ts'
import { startSwtpm, type TestTpm } from '../../rigs/swtpm.ts'
import { ekAttributes, rsaSample } from '../../rigs/tpm-samples.ts'

const nowMs = simulatedAsOf.getTime()
const platform = await simulatedPlatform('genoa')
const roots = [...AMD_ROOTS, platform.authority.root]
const policy: Policy = { ...strictPolicy(), measurements: [measurement] }
const receipt = JSON.stringify(await sampleReceipt('claim', { fields: { ...fieldsOf.claim, name: 'abcd1234' } }))
const nonce = new Uint8Array(32).fill(0x33)
const measured = { commandLine: utf8('console=ttyS0'), image: utf8('{"name":"instance"}') }
const question: Omit<TpmQuestion, 'reply'> = { nonce, measured, receipt, measurement, nowMs, roots, policy }

async function replyOf({ device }: TestTpm, service: SvsmService | null = null): Promise<TpmReply> {
  const svsm = Promise.resolve(service)
  const answer = await createTpm({ device, measured, svsm, clock: systemClock, log: silentLogger }).evidence(nonce)
  return answer.kind === 'evidence' ? { kind: 'evidence', evidence: toBase64Url(answer.bytes) } : answer
}

function wrongIn(line: { readonly checks: readonly { name: string; outcome: string }[] }): string[] {
  return line.checks.filter(one => one.outcome !== 'pass').map(({ outcome, name }) => `${outcome} ${name}`)
}

describe('TPM measurements', () => {
  // Goal: no TPM and no answer are not checked and say what to do; a TPM that fails, or talks nonsense, fails.
  test('without a quote', async () => {
    const none = await judgeTpm({ ...question, reply: { kind: 'none' } })
    expect(none.line).toMatchObject({ name: 'TPM measurements', outcome: 'not-checked' })
    expect(none.line.reason).toContain('this VM has no TPM. On snp it needs an image that boots an SVSM')
    expect(await judgeTpm({ ...question, reply: 'the agent does not answer' })).toMatchObject({
      line: { outcome: 'not-checked', reason: 'tpm: the agent does not answer' },
    })
    for (const reply of [
      { kind: 'failed', reason: 'EIO' },
      { kind: 'evidence', evidence: 'AAAA' },
      { kind: 'evidence', evidence: '=' },
    ] as const)
      expect(await judgeTpm({ ...question, reply })).toMatchObject({ line: { outcome: 'fail' }, isHostsAlone: false })
  })

  // Goal: the host's TPM fails always, whatever root is trusted; that it alone is wrong is known, and a quote over another nonce is more wrong.
  test("of the host's", async () => {
    await using tpm = await startSwtpm()
    const reply = await replyOf(tpm)
    const found = await judgeTpm({ ...question, reply })
    expect(found).toMatchObject({ kind: 'vtpm:host-untrusted', isHostsAlone: true, line: { outcome: 'fail' } })
    expect(wrongIn(found.line)).toEqual(['fail vtpm-binding'])
    expect(found.line.reason).toStartWith('vtpm:host-untrusted: the host runs this TPM')
    const replayed = await judgeTpm({ ...question, reply, nonce: new Uint8Array(32).fill(0x34) })
    expect(replayed).toMatchObject({ isHostsAlone: false, line: { outcome: 'fail' } })
    expect(replayed.line.reason).toContain('it is not even sound (tpm-quote-nonce: extraData is not the nonce)')
    const elsewhere = { ...measured, commandLine: utf8('console=ttyS0 init=/bin/sh') }
    expect((await judgeTpm({ ...question, reply, measured: elsewhere })).isHostsAlone).toBe(false)
  })

  // Goal: a development machine's two lines fail and are excused only where the caller trusts its root and nothing else is wrong.
  test('and the exit code of a development machine', async () => {
    await using tpm = await startSwtpm()
    const reply = await replyOf(tpm)
    const hardware = { receipt, name: 'abcd1234', nowMs, policy }
    const trusting = await judgeHardware({ ...hardware, roots })
    expect(trusting).toMatchObject({ isSimulatedAlone: true, line: { outcome: 'fail' } })
    for (const worse of [
      { ...hardware, roots: AMD_ROOTS },
      { ...hardware, roots, policy: strictPolicy() },
      { ...hardware, roots, name: 'zzzz9999' },
      { ...hardware, roots, receipt: receipt.replace('"platform":"simulated"', '"platform":"snp"') },
      { ...hardware, roots, receipt: null },
    ])
      expect((await judgeHardware(worse)).isSimulatedAlone).toBe(false)
    const second = (await judgeTpm({ ...question, reply })).line
    const others = LINES.slice(2).map(name =>
      lineOf(name, [{ name: 'a', outcome: 'pass', reason: '', required: true }], ''),
    )
    const lines = [trusting.line, second, ...others]
    expect(isGood(lines)).toBe(false)
    expect(isGood(lines, ['hardware attestation'])).toBe(false)
    expect(isGood(lines, ['hardware attestation', 'TPM measurements'])).toBe(true)
  })

  // Goal: with an SVSM's report over nonce and endorsement key everything is checked up to the key of the quote, which no credential ties to that
  // TPM; a report of another nonce, of another privilege level, of another measurement, or without a root is refused.
  test('of an SVSM', async () => {
    await using tpm = await startSwtpm()
    const manifest = (await rsaSample('RSASSA', 'SHA-256')).publicArea(ekAttributes)
    const service =
      (changes: { vmpl?: number; measurement?: Uint8Array; over?: Uint8Array } = {}): SvsmService =>
      async given => ({
        manifest,
        report: await platform.report({
          reportData: sha512(concat(changes.over ?? given, manifest)),
          measurement: changes.measurement ?? measurement,
          report: { idKeyDigest: operatorKey, ...(changes.vmpl === undefined ? {} : { vmpl: changes.vmpl }) },
        }),
      })
    const judged = async (changes: Parameters<typeof service>[0] = {}, asked: Partial<TpmQuestion> = {}) => {
      const found = await judgeTpm({ ...question, ...asked, reply: await replyOf(tpm, service(changes)) })
      expect(found).toMatchObject({ kind: 'vtpm:svsm-vmpl0', isHostsAlone: false })
      expect(found.line.outcome).not.toBe('pass')
      return wrongIn(found.line)[0]
    }
    expect(await judged()).toBe('not-checked vtpm-attestation-key')
    expect(await judged({ over: new Uint8Array(64) })).toBe('fail vtpm-report-data')
    expect(await judged({ vmpl: 1 })).toBe('fail vtpm-evidence')
    expect(await judged({ measurement: new Uint8Array(48) })).toBe('fail vtpm-evidence')
    expect(await judged({}, { roots: AMD_ROOTS })).toBe('fail vtpm-evidence')
    expect(await judged({}, { receipt: null })).toBe('fail vtpm-evidence')
    expect(await judged({}, { measurement: new Uint8Array(48) })).toBe('fail vtpm-measurement')
  })
})
