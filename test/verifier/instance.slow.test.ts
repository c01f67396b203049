// Goal: an instance's attestation passes only as a whole: one change anywhere fails, by the name of what was changed.

import { describe, expect, test } from 'bun:test'
import { operatorKey, sampleReceipt } from '../../scripts/rigs/gateway/receipt-samples.ts'
import { claimedOf, evidenceOf, guestHostKey } from '../../scripts/rigs/guest/attested-guest.ts'
import { simulatedAsOf, simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { fromBase64Url, toBase64Url, toHex, utf8 } from '../../src/base/bytes.ts'
import type { InstanceAttestation } from '../../src/contract/http/instance-attestation.ts'
import { type LaunchDocument, launchText } from '../../src/contract/vm/launch.ts'
import { toAttestation } from '../../src/instances/attestation.codec.ts'
import {
  type InstanceQuestion,
  instanceAttestationBytesMax,
  readInstanceHostname,
  verifyInstance,
} from '../../src/verifier/instance.ts'
import { allInstancePins, type InstancePins } from '../../src/verifier/instance-pins.ts'
import {
  ed25519Line,
  instanceQuestion,
  makeInstanceAttestation,
  sampleHostKey,
  sampleImage,
  sampleInstance,
  sampleLaunch,
  sampleMeasurement,
  sampleNonce,
  samplePolicy,
  samplePublicKey,
  type WantedAttestation,
} from '../rigs/instances/instance-attestation.ts'

const good = await makeInstanceAttestation()

/** Names and reasons of what failed or is missing, and the whole verdict. */
async function judge(document: unknown, changes: Partial<InstanceQuestion> = {}) {
  const bytes = document instanceof Uint8Array ? document : utf8(JSON.stringify(document))
  const found = await verifyInstance(bytes, await instanceQuestion(changes))
  const bad = found.checks.filter(
    check => check.outcome === 'fail' || (check.required && check.outcome === 'not-checked'),
  )
  return { found, failed: bad.map(check => check.name), reasons: bad.map(check => check.reason).join('\n') }
}

/** A bad verdict gives nothing that could be used. */
async function expectBad(document: unknown, names: readonly string[], changes: Partial<InstanceQuestion> = {}) {
  const { found, failed, reasons } = await judge(document, changes)
  expect([found.ok, failed]).toEqual([false, [...names]])
  expect([found.knownHost, found.xwingPublicKey]).toEqual([null, null])
  return reasons
}

describe('a good one', () => {
  test('passes, and gives the line and the keys', async () => {
    // Goal: what the owner needs comes out of the verdict, and it says SIMULATED.
    const { found, failed } = await judge(good)
    expect([found.ok, failed, found.simulated]).toEqual([true, [], true])
    expect(found.checks.filter(check => check.outcome !== 'pass')).toEqual([])
    expect(found.knownHost?.line).toBe(`${sampleInstance.hostname} ${sampleHostKey}`)
    expect(found.launch).toEqual(sampleLaunch)
    const { mlkem768, x25519 } = good.receipt.keys
    const [kem, dh] = [fromBase64Url(mlkem768) ?? [], fromBase64Url(x25519) ?? []]
    expect(toHex(found.xwingPublicKey ?? new Uint8Array(0))).toBe(toHex(Uint8Array.from([...kem, ...dh])))
    expect(found.xwingPublicKey).toHaveLength(1216)
  })

  test('in the envelope, and as an object', async () => {
    // Goal: a saved response of service A is judged as it is.
    const envelope = { request_id: `req_${'a'.repeat(24)}`, correlation_id: null, data: good }
    expect((await judge(envelope)).found.ok).toBe(true)
    expect((await verifyInstance(good, await instanceQuestion())).ok).toBe(true)
    await expectBad({ ...envelope, more: 1 }, ['attestation-format'])
  })

  test('with an image in the place of a measurement', async () => {
    // Goal: the manifest pins the measurement by itself.
    const policy = { ...samplePolicy(), measurements: 'any' as const }
    const { found } = await judge(good, { policy })
    expect(found.ok).toBe(true)
    expect(found.checks.find(check => check.name === 'receipt/measurement')?.outcome).toBe('pass')
    await expectBad(good, ['pin-measurement'], { policy, image: 'any' })
  })

  test('with nothing expected says what it did not check', async () => {
    // Goal: what was not compared is not shown as passed.
    const { found } = await judge(good, { publicKey: 'any', image: 'any', nonce: 'any', ageMsMax: 'any' })
    const open = found.checks.filter(check => check.outcome === 'not-checked').map(check => check.name)
    expect([found.ok, open]).toEqual([true, ['attestation-nonce', 'own-key', 'image']])
  })
})

test('goal: what service A makes of a guest’s evidence is what its owner accepts', async () => {
  const { name, organization, hostname } = sampleInstance
  const claimed = claimedOf({ organization, name, hostname, publicKey: samplePublicKey })
  const report = { report: { idKeyDigest: operatorKey, platformInfo: 0x21n } }
  const evidence = await evidenceOf({ nonce: sampleNonce, claimed }, { report })
  const document = toAttestation(evidence, { nonce: sampleNonce, claimed })
  const { found, failed } = await judge(document, { image: 'any' })
  expect([failed, found.ok, found.knownHost?.line]).toEqual([[], true, `${hostname} ${guestHostKey}`])
})

describe('what is required', () => {
  test('goal: each pin that nobody names fails by its name, and a waiver is repeated in the verdict', async () => {
    const policy = { ...strictPolicy(), vmpls: 'any' as const }
    const gateway = { policy: 'any', outside: [], unattested: 'none' } as const
    await expectBad(good, ['pin-measurement', 'pin-operator-key', 'pin-gateway', 'pin-vmpl'], {
      policy,
      image: 'any',
      gateway,
    })
    const waived: InstancePins = {
      measurement: 'any',
      'operator-key': 'any',
      gateway: 'any',
      vmpl: 'any',
      crl: 'any',
      tcb: 'any',
    }
    const { found } = await judge(good, { policy, image: 'any', gateway, pins: waived })
    const said = found.checks.filter(check => check.outcome === 'not-checked' && check.name.startsWith('pin-'))
    expect([found.ok, said.map(check => check.name)]).toEqual([
      true,
      ['pin-measurement', 'pin-operator-key', 'pin-gateway', 'pin-vmpl', 'pin-crl', 'pin-tcb'],
    ])
  })

  test('goal: whatever is not exactly any leaves nothing out', async () => {
    const policy = { ...strictPolicy(), vmpls: 'any' as const }
    const wrong = { measurement: undefined, 'operator-key': true, vmpl: null, crl: 'none', tcb: 'ANY' }
    for (const pins of [wrong, {}] as unknown as InstancePins[]) {
      await expectBad(good, ['pin-measurement', 'pin-operator-key', 'pin-vmpl'], { policy, image: 'any', pins })
    }
  })

  test('goal: an operator key of zeros is nobody, and so no pin', async () => {
    const policy = { ...samplePolicy(), idKeyDigest: new Uint8Array(48) }
    await expectBad(good, ['pin-operator-key', 'receipt/evidence', 'receipt/operator-key'], { policy })
  })

  test('goal: evidence without a revocation list fails unless that is waived', async () => {
    const { crl: _, ...evidence } = good.receipt.evidence
    const bare = { ...good, receipt: { ...good.receipt, evidence } }
    expect(await expectBad(bare, ['receipt/evidence'])).toContain('no CRL was given')
    expect((await judge(bare, { pins: { ...allInstancePins, crl: 'any' } })).found.ok).toBe(true)
  })

  test('goal: simulated evidence fails without its root', async () => {
    expect(await expectBad(good, ['receipt/evidence'], { roots: AMD_ROOTS })).toContain('chain-root')
  })

  test('goal: old firmware fails', async () => {
    const { authority } = await simulatedPlatform('genoa')
    const old = await makeInstanceAttestation({ report: { platformInfo: 1n } })
    expect(await expectBad(old, ['receipt/tcb-floor'], { roots: [authority.root] })).toContain('AMD-SB-3015')
  })
})

describe('another than what was asked for', () => {
  const other = { name: 'zzzzzzzz', organization: 'other', hostname: 'zzzzzzzz.other.agents.example' }
  const cases: readonly (readonly [string, Partial<InstanceQuestion>, readonly string[]])[] = [
    ['nonce', { nonce: new Uint8Array(32) }, ['attestation-nonce']],
    ['name', { instance: { ...sampleInstance, name: other.name } }, ['instance', 'receipt/claim']],
    [
      'organization',
      { instance: { ...sampleInstance, organization: other.organization } },
      ['instance', 'receipt/claim'],
    ],
    [
      'host name',
      { instance: { ...sampleInstance, hostname: other.hostname } },
      ['instance', 'known-hosts', 'receipt/claim', 'receipt/host-key'],
    ],
    ['own key', { publicKey: ed25519Line(5) }, ['own-key']],
    ['own key that is none', { publicKey: 'ssh-ed25519 AAAA' }, ['own-key']],
    ['time', { asOf: simulatedAsOf.getTime() + 61_000 }, ['receipt/nonce']],
    [
      'measurement',
      { policy: { ...samplePolicy(), measurements: [new Uint8Array(48)] } },
      ['receipt/evidence', 'receipt/measurement'],
    ],
    [
      'operator key',
      { policy: { ...samplePolicy(), idKeyDigest: sampleMeasurement } },
      ['receipt/evidence', 'receipt/operator-key'],
    ],
  ]
  // Goal: each thing that was asked for is compared, and named where the document has another.
  test.each(cases)('%s', async (_, changes, names) => {
    await expectBad(good, names, changes)
  })

  // Goal: a recorded answer for another question is refused, although all of it is genuine.
  test.each<readonly [string, WantedAttestation, readonly string[]]>([
    ['recorded for another nonce', { nonce: new Uint8Array(32).fill(3) }, ['attestation-nonce']],
    ['of another instance', { instance: other }, ['instance', 'known-hosts', 'receipt/claim', 'receipt/host-key']],
    [
      'of another organization with the same name',
      { instance: { ...sampleInstance, organization: 'other', hostname: 'k3v9x2ma.other.agents.example' } },
      ['instance', 'known-hosts', 'receipt/claim', 'receipt/host-key'],
    ],
    ['of another customer', { publicKey: ed25519Line(6) }, ['own-key']],
    ['made too early', { nowMs: simulatedAsOf.getTime() - 3_600_000 }, ['receipt/nonce']],
  ])('%s', async (_, wanted, names) => {
    await expectBad(await makeInstanceAttestation(wanted), names)
  })

  // Goal: a genuine receipt under the fields of what was asked for is of no use either.
  test.each<readonly [string, WantedAttestation, readonly string[]]>([
    ['nonce', { statement: { nonce: new Uint8Array(32) } }, ['receipt/nonce']],
    ['organization', { statement: { organization: 'other' } }, ['receipt/claim']],
    ['name', { statement: { name: 'zzzzzzzz' } }, ['receipt/claim']],
    ['hostname', { statement: { hostname: 'other.example' } }, ['receipt/claim']],
    ['sshHostKeyDigest', { statement: { sshHostKeyDigest: new Uint8Array(32) } }, ['receipt/host-key']],
    ['publicKeyDigest', { statement: { publicKeyDigest: new Uint8Array(32) } }, ['receipt/public-key']],
    [
      'image.name',
      { statement: { image: { name: 'gateway', measurement: sampleMeasurement } } },
      ['receipt/measurement'],
    ],
  ])('%s in the statement', async (_, wanted, names) => {
    await expectBad(await makeInstanceAttestation(wanted), names)
  })

  // Goal: a genuine receipt for something else is no claim.
  test.each(['workload', 'build'] as const)('a receipt of kind %s', async kind => {
    const receipt = JSON.parse(JSON.stringify(await sampleReceipt(kind)))
    const reasons = await judge({ ...good, receipt })
    expect(reasons.found.ok).toBe(false)
    expect(reasons.failed).toContain('receipt/claim')
    expect(reasons.reasons).toContain(`the statement is a ${kind}, not a claim`)
  })
})

describe('the document', () => {
  const kind = 'ssh-ed25519'
  const key = sampleHostKey.slice(kind.length + 1)
  const host = sampleInstance.hostname
  const hostLine = (line: string) => ({ ...good, known_hosts: line })

  // Goal: nothing but one line for this host and this key is taken for the line.
  test.each<readonly [string, string, string]>([
    ['another host', `other.example ${kind} ${key}`, 'the host "other.example" is not'],
    ['upper case', `${host.toUpperCase()} ${kind} ${key}`, 'is not'],
    ['two lines', `${host} ${kind} ${key}\n*.example ${kind} ${key}`, 'more than one line'],
    ['an end of line', `${host} ${kind} ${key}\n`, 'more than one line'],
    ['a return', `${host} ${kind} ${key}\r`, 'more than one line'],
    ['an authority', `@cert-authority ${host} ${kind} ${key}`, 'a marker'],
    ['a list', `${host},*.example ${kind} ${key}`, 'a pattern, a list or a hash'],
    ['a wildcard', `*.acme.agents.example ${kind} ${key}`, 'a pattern'],
    ['a hash', `|1|AAAA|BBBB ${kind} ${key}`, 'a pattern'],
    ['a port', `[${host}]:22 ${kind} ${key}`, 'is not'],
    ['another type', `${host} ssh-rsa ${key}`, 'the key type "ssh-rsa" is not ssh-ed25519'],
    ['a comment', `${host} ${kind} ${key} x`, 'something follows the key'],
    ['a space more', `${host}  ${kind} ${key}`, 'the key type "" is not'],
    ['another blob', `${host} ${kind} AAAAB3NzaC1yc2EAAAADAQABAAAAAQEA`, 'names one key type and holds another'],
    ['a short blob', `${host} ${kind} AAAAC3NzaC1lZDI1NTE5AAAAAQE=`, '20 bytes are no Ed25519 key'],
    ['no base64', `${host} ${kind} ${key.slice(0, -1)}!`, 'not canonical base64'],
    ['nothing', '', 'is not'],
  ])('known_hosts with %s', async (_, line, reason) => {
    const reasons = await expectBad(hostLine(line), ['known-hosts', 'receipt/host-key'])
    expect(reasons.split('\n')[0]).toContain(reason)
  })

  // Goal: each field, changed alone, is named.
  test.each<readonly [string, Partial<InstanceAttestation>, readonly string[]]>([
    ['organization', { organization: 'other' }, ['instance', 'claim-document']],
    ['name', { name: 'zzzzzzzz' }, ['instance', 'claim-document']],
    ['hostname', { hostname: 'zzzzzzzz.acme.agents.example' }, ['instance', 'claim-document']],
    ['nonce', { nonce: toBase64Url(new Uint8Array(32)) }, ['attestation-nonce', 'receipt/nonce']],
    ['nonce that is not canonical', { nonce: `${good.nonce.slice(0, -1)}_` }, ['attestation-nonce', 'receipt/nonce']],
    ['known_hosts', { known_hosts: `${host} ${ed25519Line(9)}` }, ['receipt/host-key']],
    ['public_key', { public_key: ed25519Line(9) }, ['own-key', 'claim-document', 'receipt/public-key']],
    [
      'public_key that is none',
      { public_key: 'x' },
      ['public-key', 'own-key', 'login-keys', 'claim-document', 'receipt/public-key'],
    ],
  ])('%s', async (_, fields, names) => {
    await expectBad({ ...good, ...fields }, names)
  })

  // Goal: what is not the contract's document is refused before anything else is looked at.
  test.each<readonly [string, unknown, string]>([
    ['another version', { ...good, schemaVersion: 2 }, '/schemaVersion'],
    ['another scope', { ...good, scope: 'everything' }, '/scope'],
    ['a field more', { ...good, extra: 1 }, '/extra'],
    ['a field less', { ...good, launch: undefined }, '/launch'],
    ['a number', 7, '/'],
    ['null', null, '/'],
    ['a list', [good], '/'],
    ['no JSON', utf8('{'), 'attestation is not valid JSON'],
    ['no UTF-8', Uint8Array.of(0xff, 0xfe), 'attestation is not valid UTF-8'],
    ['nothing', new Uint8Array(0), 'attestation is not valid JSON'],
    ['a name twice', utf8(JSON.stringify(good).replace('{', '{"nonce":"x",')), 'has the field "nonce" twice'],
    ['too much', new Uint8Array(instanceAttestationBytesMax + 1), 'bytes are too many'],
  ])('%s', async (_, document, reason) => {
    expect(await expectBad(document, ['attestation-format'])).toContain(reason)
  })
})

describe('the receipt', () => {
  type Leaf = readonly [path: string, at: number, expected: string]
  // Goal: one bit anywhere in what was signed, in a key, a signature, a certificate or the report fails by a check that
  // says where.
  test.each<Leaf>([
    ['statement', 100, 'receipt/evidence'],
    ['keys.ed25519', 3, 'receipt/evidence'],
    ['keys.mldsa65', 700, 'receipt/evidence'],
    ['keys.x25519', 3, 'receipt/evidence'],
    ['keys.mlkem768', 700, 'receipt/evidence'],
    ['signatures.ed25519', 10, 'receipt/evidence'],
    ['signatures.mldsa65', 1000, 'receipt/evidence'],
    ['evidence.report', 0x08, 'launch-policy'],
    ['evidence.report', 0x50, 'receipt/evidence'],
    ['evidence.report', 0x90, 'launch-measurement'],
    ['evidence.report', 0xc0, 'launch-host-data'],
    ['evidence.report', 0xe0, 'receipt/operator-key'],
    ['evidence.report', 0x30, 'receipt/evidence'],
    ['evidence.report', 0x188, 'receipt/evidence'],
    ['evidence.report', 0x2a0, 'receipt/evidence'],
    ['evidence.vek', 400, 'receipt/evidence'],
    ['evidence.chain.0', 400, 'receipt/evidence'],
    ['evidence.chain.1', 400, 'receipt/evidence'],
    ['evidence.crl', 200, 'receipt/evidence'],
  ])('%s at %i', async (path, at, expected) => {
    const changed = JSON.parse(JSON.stringify(good))
    const names = path.split('.')
    const last = names.pop() ?? ''
    const parent = names.reduce((node, name) => node[name], changed.receipt)
    const bytes = fromBase64Url(parent[last]) ?? new Uint8Array(0)
    bytes[at] = (bytes[at] ?? 0) ^ 1
    parent[last] = toBase64Url(bytes)
    const { found, failed } = await judge(changed)
    expect([found.ok, found.knownHost]).toEqual([false, null])
    expect(failed).toContain(expected)
    expect(failed).toContain('receipt/evidence')
  })

  test('goal: a genuine chain of another authority does not vouch', async () => {
    const { authority } = await simulatedPlatform('milan')
    await expectBad(good, ['receipt/evidence'], { roots: [authority.root] })
  })

  test('goal: the caller’s revocation list is the one that counts', async () => {
    await expectBad(good, ['receipt/evidence'], { crl: Uint8Array.of(0x30, 0) })
  })
})

describe('the launch', () => {
  const texts = Object.keys(sampleLaunch).map(field => [field, changedLaunch(field)] as const)
  // Goal: the report vouches for every letter of the launch document.
  test.each(texts)('%s changed under the same HOST_DATA', async (field, changed) => {
    const { found, failed, reasons } = await judge({ ...good, launch: launchText(changed) })
    expect(found.ok).toBe(false)
    expect(failed).toContain('launch-host-data')
    if (field === 'format') expect(reasons).toContain('launch document: /format')
  })

  // Goal: a host that launches something else, and says so in HOST_DATA, is caught by what the relying party expects.
  test.each<readonly [string, readonly string[]]>([
    ['image', ['image', 'receipt/measurement']],
    ['vehicle', ['image']],
    ['firmwareSha256', ['image']],
    ['kernelSha256', ['image']],
    ['initrdSha256', ['image']],
    ['cmdlineSha256', ['image']],
    ['vcpus', ['image']],
    ['vcpuType', ['image']],
    ['policy', ['launch-policy']],
    ['measurement', ['launch-measurement', 'image']],
  ])('another %s, said truly', async (field, names) => {
    const reasons = await expectBad(await makeInstanceAttestation({ launch: changedLaunch(field) }), names)
    expect(reasons).toContain(field === 'image' ? 'image.name is other' : '')
  })

  test('goal: another HOST_DATA, policy, VMPL or a guest with debugging fails', async () => {
    const of = (wanted: WantedAttestation) => makeInstanceAttestation(wanted)
    await expectBad(await of({ hostData: new Uint8Array(32) }), ['launch-host-data'])
    await expectBad(await of({ report: { policy: 0x70000n } }), ['launch-policy', 'receipt/evidence'])
    await expectBad(await of({ report: { policy: 0xb0000n } }), ['launch-policy', 'receipt/evidence'])
    const debug = await of({ launch: { ...sampleLaunch, policy: '0xb0000' }, report: { policy: 0xb0000n } })
    expect(await expectBad(debug, ['receipt/evidence'])).toContain('guest-policy-debug')
    expect(await expectBad(await of({ report: { vmpl: 1 } }), ['receipt/evidence'])).toContain('vmpl')
  })

  // Goal: one document has one text; every other spelling, and what is no document, is refused though HOST_DATA is its
  // digest.
  test.each<readonly [string, string]>([
    ['white space', JSON.stringify(sampleLaunch, null, 1)],
    ['another order', JSON.stringify({ ...sampleLaunch, image: undefined, measurement: sampleLaunch.measurement })],
    ['a name twice', launchText(sampleLaunch).replace('"vcpus":2', '"vcpus":2,"vcpus":2')],
    ['an escape', launchText(sampleLaunch).replace('"instance"', '"\\u0069nstance"')],
    ['a byte order mark', `\uFEFF${launchText(sampleLaunch)}`],
    ['a field more', launchText(sampleLaunch).replace('{', '{"debug":true,')],
    ['no JSON', 'x'],
    ['nothing', ''],
  ])('%s', async (_, launch) => {
    const { found, failed } = await judge(await makeInstanceAttestation({ launch }))
    expect(found.ok).toBe(false)
    expect(failed).toContain('launch-document')
    expect(failed).not.toContain('launch-host-data')
  })

  function changedLaunch(field: string): LaunchDocument {
    const changes: Readonly<Record<string, unknown>> = {
      format: 'strongroom/launch/v2',
      image: { ...sampleLaunch.image, name: 'other' },
      vehicle: 'igvm',
      vcpus: 3,
      vcpuType: 'EPYC-Genoa',
      memoryMib: 4096,
      policy: '0x30001',
      measurement: 'cc'.repeat(48),
    }
    return { ...sampleLaunch, [field]: changes[field] ?? 'cc'.repeat(32) } as LaunchDocument
  }
})

test('goal: a name out of the prototype is no launch digest', async () => {
  const image = { ...sampleImage(), launchDigests: Object.create({ 'qemu-kvm/bios/EPYC-v4/2': 'cc'.repeat(48) }) }
  const reasons = await expectBad(good, ['image'], { image })
  expect(reasons).toContain('no launch digest for ovmf/EPYC-v4/2')
})

test('goal: names of instances are read exactly', () => {
  expect(readInstanceHostname('k3v9x2ma.acme.agents.example')).toEqual({
    name: 'k3v9x2ma',
    organization: 'acme',
    domain: 'agents.example',
    hostname: 'k3v9x2ma.acme.agents.example',
  })
  const wrong = ['', 'k3v9x2ma', 'k3v9x2ma.acme', 'K3V9X2MA.acme.x', 'k3v9x2m.acme.x', 'k3v9x2ma..x', 'k3v9x2ma.a_b.x']
  const more = [
    'k3v9x2ma.acme.x.',
    '.k3v9x2ma.acme.x',
    'k3v9x2ma.acme.*',
    'k3v9x2ma.-a.x',
    `k3v9x2ma.a.${'x.'.repeat(130)}y`,
  ]
  for (const text of [...wrong, ...more, 'k3v9x2ma.acme.x\n', '-oProxyCommand.acme.x']) {
    expect([text, readInstanceHostname(text)]).toEqual([text, null])
  }
})

test('goal: a nonce is sent as 32 bytes', () => {
  expect(good.nonce).toBe(toBase64Url(sampleNonce))
})
