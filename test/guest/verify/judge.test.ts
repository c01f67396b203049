import { describe, expect, test } from 'bun:test'
import { fieldsOf, measurement, sampleReceipt, statementOf } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { FLOOR_PARTS, type FloorWaivers, floorCheckName } from '../../../src/attest/policy/floors.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import type { StatementOf } from '../../../src/attest/receipt/statement.ts'
import { isBroken } from '../../../src/attest/verdict.ts'
import { judgeHardware } from '../../../src/guest/verify/hardware.ts'
import { judgeHostKey } from '../../../src/guest/verify/host-key.ts'

const nowMs = simulatedAsOf.getTime()
const policy: Policy = { ...strictPolicy(), measurements: [measurement] }
const receipt = JSON.stringify(await sampleReceipt('claim', { fields: { ...fieldsOf.claim, name: 'abcd1234' } }))
const { root } = (await simulatedPlatform('genoa')).authority
const question = { receipt, name: 'abcd1234', nowMs, policy, waivers: {} }

describe('hardware attestation', () => {
  // Goal: a simulated platform fails and says so, with its root trusted or not; only with trust its claim counts for
  // the other lines.
  test('of a simulated platform', async () => {
    const trusted = await judgeHardware({ ...question, roots: [...AMD_ROOTS, root] })
    expect(trusted.line).toMatchObject({ outcome: 'fail' })
    const clock = `its clock shows ${simulatedAsOf.toISOString()}, which its host sets`
    expect(trusted.line.reason).toBe(
      `SIMULATED: no hardware attests this VM; the rest of its evidence is good; ${clock}`,
    )
    expect(trusted.line.checks.find(check => check.name === 'clock')).toMatchObject({ required: false, reason: clock })
    expect(trusted).toMatchObject({ simulated: true, statement: { name: 'abcd1234', organization: 'acme' } })
    const stranger = await judgeHardware({ ...question, roots: AMD_ROOTS })
    expect(stranger.line.outcome).toBe('fail')
    expect(stranger.line.reason).toStartWith('SIMULATED: no hardware attests this VM; its evidence is not good either')
    expect(stranger).toMatchObject({ simulated: true, statement: null })
  })

  // Goal: a receipt that says hardware but has no root of AMD's fails as forged, and its claim counts for nothing.
  test('of a liar', async () => {
    const lie = receipt.replace('"platform":"simulated"', '"platform":"snp"')
    const found = await judgeHardware({ ...question, receipt: lie, roots: AMD_ROOTS })
    expect(found).toMatchObject({ line: { outcome: 'fail' }, statement: null })
    const trusting = await judgeHardware({ ...question, receipt: lie, roots: [...AMD_ROOTS, root] })
    expect(trusting).toMatchObject({ line: { outcome: 'fail' }, simulated: true, statement: null })
  })

  // Goal: another VM's receipt, another measurement, a changed byte and no receipt at all are distinct.
  test('that is not this one', async () => {
    const roots = [...AMD_ROOTS, root]
    for (const other of [
      { ...question, roots, name: 'zzzz9999' },
      { ...question, roots, policy: { ...policy, measurements: [new Uint8Array(48)] } },
      { ...question, roots, receipt: receipt.replace('"statement":"', '"statement":"A') },
    ]) {
      expect(await judgeHardware(other)).toMatchObject({ line: { outcome: 'fail' }, statement: null })
    }
    const none = await judgeHardware({ ...question, roots, receipt: null })
    expect(none).toMatchObject({ line: { outcome: 'not-checked' }, statement: null })
    const unpinned = await judgeHardware({ ...question, roots, policy: strictPolicy() })
    expect(unpinned.line.checks.find(check => check.name === 'pin-measurement')?.outcome).toBe('not-checked')
  })
})

// Goal: a part of the floors that is waived fails no more and says why; the others fail as before.
test('the hardware with a part of its floors waived', async () => {
  const failing = async (waivers: FloorWaivers) => {
    const { line } = await judgeHardware({ ...question, waivers, roots: [...AMD_ROOTS, root] })
    const floors = line.checks.filter(({ name }) => name.includes('floor'))
    return { failed: floors.filter(isBroken).map(({ name }) => name), floors }
  }
  const before = await failing({})
  const names = FLOOR_PARTS.filter(part => before.failed.includes(floorCheckName(part)))
  expect(names.length).toBeGreaterThan(0)
  const [waived = 'snp'] = names
  const after = await failing({ [waived]: 'a machine of the lab' })
  expect(after.failed).toEqual(before.failed.filter(name => name !== floorCheckName(waived)))
  expect(after.floors.find(({ name }) => name === floorCheckName(waived))?.reason).toStartWith(
    'waived (a machine of the lab): ',
  )
})

describe('host-key binding', () => {
  const blob = Uint8Array.from([0, 0, 0, 11, ...Buffer.from('ssh-ed25519'), 0, 0, 0, 32, ...new Uint8Array(32).fill(5)])
  const line = `127.0.0.1 ssh-ed25519 ${blob.toBase64()}\n`
  const statement = { ...statementOf('claim'), sshHostKeyDigest: sha256(blob) } as StatementOf<'claim'>

  // Goal: exactly the attested key passes; another, a second one, none, and no attested claim do not.
  test('is of the key that sshd presents', () => {
    const outcome = (scan: { ok: boolean; text: string }, of: StatementOf<'claim'> | null = statement) =>
      judgeHostKey({ scan, statement: of }).outcome
    expect(outcome({ ok: true, text: `# 127.0.0.1:22 SSH-2.0\n${line}` })).toBe('pass')
    expect(outcome({ ok: true, text: line }, { ...statement, sshHostKeyDigest: new Uint8Array(32) })).toBe('fail')
    expect(outcome({ ok: true, text: `${line}${line.replace('AAAA', 'AAAB')}` })).toBe('fail')
    expect(outcome({ ok: true, text: '127.0.0.1 ssh-ed25519 ***\n' })).toBe('fail')
    expect(outcome({ ok: true, text: '' })).toBe('fail')
    expect(outcome({ ok: false, text: 'sshd presents no key' })).toBe('fail')
    expect(outcome({ ok: true, text: line }, null)).toBe('not-checked')
  })
})
