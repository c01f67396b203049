// The second line, over a real TPM (swtpm) run by the host or as an SVSM would: the SVSM is a stand-in, its report
// simulated.

import { describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { fieldsOf, measurement, operatorKey, sampleReceipt } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { createTsmKernel } from '../../../scripts/rigs/guest/tsm-kernel.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { findSvsm } from '../../../src/guest/report/svsm.ts'
import { encodeTpmRequest, type TpmRequest } from '../../../src/guest/tpm/request.codec.ts'
import { serveTpm, type TpmReply } from '../../../src/guest/tpm/socket.ts'
import { createTpm, type SvsmService, type Tpm } from '../../../src/guest/tpm/tpm.ts'
import { judgeHardware } from '../../../src/guest/verify/hardware.ts'
import { isGood, LINES, lineOf } from '../../../src/guest/verify/line.ts'
import { judgeTpm, type TpmQuestion } from '../../../src/guest/verify/tpm.ts'
import { startSwtpm, type TestTpm } from '../../rigs/launch/swtpm.ts'
import { ekAttributes, rsaSample } from '../../rigs/launch/tpm-samples.ts'

const nowMs = simulatedAsOf.getTime()
const platform = await simulatedPlatform('genoa')
const roots = [...AMD_ROOTS, platform.authority.root]
const policy: Policy = { ...strictPolicy(), measurements: [measurement] }
const receipt = JSON.stringify(await sampleReceipt('claim', { fields: { ...fieldsOf.claim, name: 'abcd1234' } }))
const nonce = new Uint8Array(32).fill(0x33)
const measured = { commandLine: utf8('console=ttyS0'), image: utf8('{"name":"instance"}') }
const question = { nonce, measured, receipt, measurement, nowMs, roots, policy, random: systemRandom }

function guestOf({ device }: TestTpm, service: SvsmService | null = null): Tpm {
  return createTpm({ device, measured, svsm: Promise.resolve(service), clock: systemClock, log: silentLogger })
}

type Ask = TpmQuestion['ask']
const silent: Ask = async () => Promise.reject(new Error('nobody is asked here'))

/** The agent's socket before this TPM. */
function agentOf(tpm: Tpm): Disposable & { readonly ask: (request: TpmRequest) => Promise<TpmReply> } {
  const dir = mkdtempSync('/tmp/tpm-verify-')
  const path = `${dir}/tpm.sock`
  const served = serveTpm({ path, tpm, log: silentLogger })
  return {
    ask: async request => {
      const socket = connect(path)
      socket.write(encodeTpmRequest(request))
      let text = ''
      for await (const chunk of socket) {
        text += String(chunk)
        if (text.endsWith('\n')) break
      }
      socket.destroy()
      return JSON.parse(text)
    },
    [Symbol.dispose]: () => {
      served[Symbol.dispose]()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

/** Judges what this agent says; `credentials`: another answers those. */
async function judgedBy(tpm: Tpm, asked: Partial<TpmQuestion> = {}, credentials = tpm) {
  using agent = agentOf(tpm)
  using second = agentOf(credentials)
  const ask: Ask = request => (request.kind === 'activate' ? second : agent).ask(request)
  return await judgeTpm({ ...question, ask, reply: await agent.ask({ kind: 'quote', nonce }), ...asked })
}

function wrongIn(line: { readonly checks: readonly { name: string; outcome: string }[] }): string[] {
  return line.checks.filter(check => check.outcome !== 'pass').map(({ outcome, name }) => `${outcome} ${name}`)
}

describe('TPM measurements', () => {
  // Goal: no TPM and no answer are not checked and say what to do; a TPM that fails, or talks nonsense, fails.
  test('without a quote', async () => {
    const none = await judgeTpm({ ...question, ask: silent, reply: { kind: 'none' } })
    expect(none.line).toMatchObject({ name: 'TPM measurements', outcome: 'not-checked' })
    expect(none.line.reason).toContain('this VM has no TPM. On snp it needs an image that boots an SVSM')
    expect(await judgeTpm({ ...question, ask: silent, reply: 'the agent does not answer' })).toMatchObject({
      line: { outcome: 'not-checked', reason: 'tpm: the agent does not answer' },
    })
    for (const reply of [
      { kind: 'failed', reason: 'EIO' },
      { kind: 'evidence', evidence: 'AAAA' },
      { kind: 'evidence', evidence: '=' },
      { kind: 'activated', proof: 'AAAA' },
    ] as const)
      expect(await judgeTpm({ ...question, ask: silent, reply })).toMatchObject({
        line: { outcome: 'fail' },
        isHostsAlone: false,
      })
  })

  // Goal: the host's TPM always fails, with any trusted root; the result shows whether that is the only fault, and a
  // quote over another nonce is a further one.
  test("of the host's", async () => {
    await using tpm = await startSwtpm()
    const guest = guestOf(tpm)
    const found = await judgedBy(guest)
    expect(found).toMatchObject({ kind: 'vtpm:host-untrusted', isHostsAlone: true, line: { outcome: 'fail' } })
    expect(wrongIn(found.line)).toEqual(['fail vtpm-binding'])
    expect(found.line.reason).toStartWith('vtpm:host-untrusted: the host runs this TPM')
    const replayed = await judgedBy(guest, { nonce: new Uint8Array(32).fill(0x34) })
    expect(replayed).toMatchObject({ isHostsAlone: false, line: { outcome: 'fail' } })
    expect(replayed.line.reason).toContain('it is invalid (tpm-quote-nonce: extraData is not the nonce)')
    const elsewhere = { ...measured, commandLine: utf8('console=ttyS0 init=/bin/sh') }
    expect((await judgedBy(guest, { measured: elsewhere })).isHostsAlone).toBe(false)
    // A quote by another TPM's key than the one that has the endorsement key.
    await using other = await startSwtpm()
    const foreign = guestOf(other)
    const split = await judgedBy(guest, {}, foreign)
    expect([split.isHostsAlone, wrongIn(split.line)]).toEqual([
      ...[false, ['fail vtpm-binding', 'fail vtpm-attestation-key']],
    ])
    const wrong = [{ kind: 'none' }, { kind: 'activated', proof: '' }, { kind: 'failed', reason: 'EIO' }, 'no'] as const
    for (const said of wrong) {
      using agent = agentOf(guest)
      const ask: Ask = async request => (request.kind === 'activate' ? said : agent.ask(request))
      expect(wrongIn((await judgedBy(guest, { ask })).line)).toContain('fail vtpm-attestation-key')
      const mute: Ask = async () => said
      expect(wrongIn((await judgedBy(guest, { ask: mute })).line)).toContain('fail vtpm-attestation-key')
    }
  })

  // Goal: a development machine's two lines fail and are excused only if the caller trusts its root and nothing else is
  // wrong.
  test('and the exit code of a development machine', async () => {
    await using tpm = await startSwtpm()
    const hardware = { receipt, name: 'abcd1234', nowMs, policy, waivers: {} }
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
    const second = (await judgedBy(guestOf(tpm))).line
    const others = LINES.slice(2).map(name =>
      lineOf(name, [{ name: 'a', outcome: 'pass', reason: '', required: true }], ''),
    )
    const lines = [trusting.line, second, ...others]
    expect(isGood(lines)).toBe(false)
    expect(isGood(lines, ['hardware attestation'])).toBe(false)
    expect(isGood(lines, ['hardware attestation', 'TPM measurements'])).toBe(true)
  })

  // Goal: with an SVSM's report over nonce and endorsement key, and a credential that this key's TPM activates, every
  // step passes; a report over another nonce, of another privilege level, of another measurement, or without a root is
  // refused. The kernel is a fake, the report simulated.
  test('of an SVSM', async () => {
    await using tpm = await startSwtpm()
    const manifest = await endorsementKeyOf(tpm)
    const judged = async (changes: ReportChanges = {}, asked: Partial<TpmQuestion> = {}) => {
      const found = await judgedBy(guestOf(tpm, await svsmOf(manifest, changes)), asked)
      expect(found).toMatchObject({ kind: 'vtpm:svsm-vmpl0', isHostsAlone: false })
      return found.line
    }
    const good = await judged()
    expect(wrongIn(good)).toEqual([])
    expect(good).toMatchObject({ outcome: 'pass' })
    expect(good.checks.map(check => check.name)).toEqual([
      ...['vtpm-evidence', 'vtpm-vmpl', 'vtpm-measurement', 'vtpm-report-data', 'vtpm-endorsement-key'],
      ...['vtpm-attestation-key', 'vtpm-binding', 'tpm-quote-signature', 'tpm-quote-format', 'tpm-quote-nonce'],
      ...['tpm-quote-pcrs', 'tpm-event-log', 'tpm-measured'],
    ])
    const first = async (changes: ReportChanges = {}, asked: Partial<TpmQuestion> = {}) => {
      const line = await judged(changes, asked)
      expect(line.outcome).not.toBe('pass')
      return wrongIn(line)[0]
    }
    expect(await first({ reportData: new Uint8Array(64) })).toBe('fail vtpm-report-data')
    expect(await first({ vmpl: 1 })).toBe('fail vtpm-evidence')
    expect(await first({ measurement: new Uint8Array(48) })).toBe('fail vtpm-evidence')
    expect(await first({}, { roots: AMD_ROOTS })).toBe('fail vtpm-evidence')
    expect(await first({}, { receipt: null })).toBe('fail vtpm-evidence')
    expect(await first({}, { measurement: new Uint8Array(48) })).toBe('fail vtpm-measurement')
  })

  // Goal: a manifest with another TPM's endorsement key, though the hardware vouches for it, fails at the attestation
  // key, as when the host puts its own TPM before the guest. Asking that other TPM instead does not help; nor does a
  // key without a credential.
  test('of an SVSM with another TPM', async () => {
    await using tpm = await startSwtpm()
    await using other = await startSwtpm()
    const service = await svsmOf(await endorsementKeyOf(other))
    const guest = guestOf(tpm, service)
    for (const credentials of [guest, guestOf(other)]) {
      const { line } = await judgedBy(guest, {}, credentials)
      expect(line.outcome).toBe('fail')
      expect(wrongIn(line)[0]).toBe('fail vtpm-attestation-key')
      expect(line.reason).toContain('no credential is activated: TPM2_ActivateCredential')
    }
    const noCipher = (await rsaSample('RSASSA', 'SHA-256')).publicArea(ekAttributes)
    const { line } = await judgedBy(guestOf(tpm, await svsmOf(noCipher)))
    expect(wrongIn(line)[0]).toBe('fail vtpm-attestation-key')
  })
})

type ReportChanges = { vmpl?: number; measurement?: Uint8Array; reportData?: Uint8Array }

/** The SVSM behind a fake configfs-tsm, with reports of the simulated platform. */
async function svsmOf(manifest: Uint8Array, changes: ReportChanges = {}): Promise<SvsmService> {
  const kernel = createTsmKernel({
    manifest,
    reportOf: reportData =>
      platform.report({
        reportData: changes.reportData ?? reportData,
        measurement: changes.measurement ?? measurement,
        report: { idKeyDigest: operatorKey, ...(changes.vmpl === undefined ? {} : { vmpl: changes.vmpl }) },
      }),
  })
  const service = await findSvsm('/sys/kernel/config/tsm/report', kernel)
  if (service === null) throw new Error('the kernel has no SVSM')
  return service
}

async function endorsementKeyOf(tpm: TestTpm): Promise<Uint8Array> {
  const answer = await guestOf(tpm).endorsementKey()
  if (answer.kind !== 'endorsement-key') throw new Error(JSON.stringify(answer))
  return answer.area
}
