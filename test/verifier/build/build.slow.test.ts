import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { cargoRecord, nixRecord, requestOf } from '../../../scripts/rigs/build/record.ts'
import { buildQuestion, sampleResult } from '../../../scripts/rigs/build/result.ts'
import { launchDigest } from '../../../src/attest/launch/digest.ts'
import { present } from '../../../src/base/assert.ts'
import { fromHex, fromUtf8, utf8 } from '../../../src/base/bytes.ts'
import {
  type BuildCase,
  badChecks,
  flipped,
  openBuildCase,
  reasonOf,
  withFile,
  withJson,
} from '../../rigs/build/case.ts'

let item: BuildCase
beforeAll(async () => {
  item = await openBuildCase()
})
afterAll(() => item.close())

// Goal: what a build VM makes passes, whoever looks at it with whatever he has; every check is made but those that he
// left out.
describe('a good result', () => {
  test('passes whole, with the IGVM file and the image', async () => {
    // Goal: every check is made but the pins that this test's policy leaves open, and the levels reached are said.
    const verdict = await item.ask(item.good.files)
    expect(badChecks(verdict)).toEqual([])
    expect([verdict.ok, verdict.firstBroken, verdict.simulated, verdict.isOwn]).toEqual([true, null, true, true])
    expect(verdict.checks.filter(check => check.outcome !== 'pass').map(check => check.name)).toEqual([
      'dispatch/measurement',
      'dispatch/operator-key',
      'completion/measurement',
      'completion/operator-key',
      'report/measurement',
      'report/operator-key',
      'igvm-kernel',
      'igvm-initrd',
    ])
    // No hardware: no level.
    expect(verdict.slsa.build).toBeNull()
  })

  test('passes with the whole image in place of an IGVM file, for every shape of VM', async () => {
    for (const shape of Object.values(item.image.manifest.launchDigests)) {
      const of = await sampleResult({ measurement: present(fromHex(shape), 'a digest') })
      const verdict = await item.ask(of.files, { igvm: 'any', image: item.bootImage({ whole: true }) })
      expect(badChecks(verdict)).toEqual([])
    }
  })

  test('passes without either, when the policy names the measurement', async () => {
    const base = await buildQuestion(item.good.nonce)
    const policy = { ...base.policy, measurements: [item.measurement] }
    const verdict = await item.ask(item.good.files, { policy, igvm: 'any', image: 'any' })
    expect(badChecks(verdict)).toEqual([])
    expect(verdict.slsa.missing).toEqual(['the platform is simulated: no hardware'])
  })

  test('passes for a Nix build with a short nonce, whose length is bound', async () => {
    // Goal: a nonce of 2 bytes needs no report of the family; padded or cut it is another nonce.
    const nix = await sampleResult({ record: nixRecord, measurement: item.measurement })
    expect(badChecks(await item.ask(nix.files, { nonce: nix.nonce, request: requestOf(nixRecord) }))).toEqual([])
    for (const other of ['00', '000100', '00010000000000000000000000000000']) {
      const verdict = await item.ask(nix.files, { nonce: present(fromHex(other), 'hex') })
      expect(badChecks(verdict)).toContain('dispatch/nonce')
      expect(verdict.firstBroken).toBe('dispatch/nonce')
    }
  })

  test('any nonce is accepted by who asks for that, if it is one', async () => {
    expect(badChecks(await item.ask(item.good.files, { nonce: 'any' }))).toEqual([])
    const two = await sampleResult({ measurement: item.measurement, completion: { nonce: Uint8Array.of(1) } })
    expect(badChecks(await item.ask(two.files, { nonce: 'any' }))).toContain('completion/nonce')
  })
})

// Goal: each file is bound, and the line that fails names it.
describe('a byte changed', () => {
  // Goal: each file is bound, and the line that fails names it.
  const lines: readonly [path: string, line: string][] = [
    ['artifacts/demo-server', 'artifact-digests'],
    ['artifacts/libdemo.so', 'artifact-digests'],
    ['attestations/slsa.json', 'byproduct-digests'],
    ['attestations/slsa.dsse.json', 'byproduct-digests'],
    ['attestations/bundle.sigstore.json', 'byproduct-digests'],
    ['attestations/sbom.cdx.json', 'byproduct-digests'],
    ['build.log', 'byproduct-digests'],
  ]
  test.each(lines)('%s', async (path, line) => {
    const { length } = present(item.good.files.get(path), path)
    for (const at of [0, Math.floor(length / 2), length - 1]) {
      const verdict = await item.ask(withFile(item.good.files, path, bytes => flipped(bytes, at)))
      expect(verdict.ok).toBe(false)
      expect(verdict.firstBroken).toBe(line)
      expect(reasonOf(verdict, line)).toContain(path)
    }
  })

  test('provenance.json: in a value, and anywhere', async () => {
    const path = 'provenance.json'
    const verdict = await item.ask(
      withFile(item.good.files, path, bytes => utf8(fromUtf8(bytes).replace('cargo build', 'cargo bvild'))),
    )
    expect(verdict.firstBroken).toBe('completion/provenance-digest')
    expect(badChecks(verdict)).toEqual(['completion/provenance-digest', 'report/provenance-digest'])
    const { length } = present(item.good.files.get(path), path)
    for (let at = 0; at < length; at += 97)
      expect((await item.ask(withFile(item.good.files, path, file => flipped(file, at)))).ok).toBe(false)
  })

  test('evidence.json: anywhere', async () => {
    const path = 'evidence.json'
    const { length } = present(item.good.files.get(path), path)
    for (let at = 0; at < length; at += 1499)
      expect((await item.ask(withFile(item.good.files, path, file => flipped(file, at)))).ok).toBe(false)
  })

  test('the IGVM file: one byte of a page', async () => {
    // Goal: whatever page it is, the digest is another, and the line says so.
    const page = item.igvm.length - 4096 * 3 + 100
    const verdict = await item.ask(item.good.files, { igvm: flipped(item.igvm, page) })
    expect(verdict.ok).toBe(false)
    expect(verdict.firstBroken).toBe('launch-measurement')
    expect(reasonOf(verdict, 'launch-measurement')).toContain('the IGVM file gives')
  })

  test('the disk: one data block, its superblock and its tree untouched', async () => {
    const verdict = await item.ask(item.good.files, {
      image: item.bootImage({ disk: flipped(item.image.disk, 4096 * 123 + 7) }),
    })
    expect(badChecks(verdict)).toEqual(['image-root-hash'])
    expect(verdict.firstBroken).toBe('image-root-hash')
    expect(reasonOf(verdict, 'image-root-hash')).toContain('verity-root')
  })

  test('the disk: superblock, and stored tree', async () => {
    for (const at of [300 * 4096 + 72, 300 * 4096 + 88, 301 * 4096, 302 * 4096 + 40]) {
      expect(
        badChecks(await item.ask(item.good.files, { image: item.bootImage({ disk: flipped(item.image.disk, at) }) })),
      ).toEqual(['image-root-hash'])
    }
    const cut = item.image.disk.subarray(0, 4096 * 200)
    expect(badChecks(await item.ask(item.good.files, { image: item.bootImage({ disk: cut }) }))).toEqual([
      'image-root-hash',
    ])
  })
})

// Goal: a disk with a good tree of its own is no use: the launch digest covers the command line, which names the root
// hash.
describe('the command line', () => {
  test('another one is not the one in the IGVM file', async () => {
    // Goal: a disk with a good tree of its own is no use: the launch digest covers the command line, which names the
    // root hash.
    const other = `${item.image.cmdline} init=/bin/sh`
    const verdict = await item.ask(item.good.files, { image: item.bootImage({ cmdline: other }) })
    expect(badChecks(verdict)).toEqual(['igvm-cmdline', 'image-root-hash'])
    const whole = { ...item.bootImage({ whole: true }), cmdline: utf8(other) }
    expect(badChecks(await item.ask(item.good.files, { igvm: 'any', image: whole }))).toContain('launch-measurement')
  })

  test('an image alone, of which nothing says that it was launched, is not enough', async () => {
    const base = await buildQuestion(item.good.nonce)
    const policy = { ...base.policy, measurements: [item.measurement] }
    const verdict = await item.ask(item.good.files, { policy, igvm: 'any', image: item.bootImage() })
    expect(badChecks(verdict)).toEqual(['launch-cmdline', 'image-root-hash'])
  })

  test.each([
    ['twice', (line: string) => `${line} strongroom.root_hash=${'0'.repeat(64)}`],
    ['missing', (line: string) => line.replace('strongroom.salt', 'salt')],
    ['malformed', (line: string) => line.replace(/data_blocks=\d+/, 'data_blocks=0x12')],
  ])('a word of dm-verity %s', async (_, change) => {
    const cmdline = change(item.image.cmdline)
    const parts = { ...item.bootImage({ whole: true }), cmdline: utf8(cmdline) }
    const boot = present(parts.boot, 'boot')
    const cpus = { vcpus: 2, vcpuType: 'EPYC-v4', features: 1n, profile: 'qemu-kvm', vehicle: 'bios' } as const
    const { digest } = await launchDigest({ ...boot, cmdline, ...cpus })
    const of = await sampleResult({ measurement: digest })
    expect(badChecks(await item.ask(of.files, { igvm: 'any', image: parts }))).toEqual([
      'cmdline-root-hash',
      'image-root-hash',
    ])
  })
})

// Goal: a result holds exactly what the provenance names, under names that stay inside of it.
describe('the list of files', () => {
  test('an unknown field in provenance.json', async () => {
    const verdict = await item.ask(
      withJson(item.good.files, 'provenance.json', value => Object.assign(value, { note: 'x' })),
    )
    expect(verdict.firstBroken).toBe('provenance-format')
    expect(reasonOf(verdict, 'provenance-format')).toContain('"note"')
  })

  test('an artifact swapped, missing, added, and one that is named twice', async () => {
    const swapped = new Map(item.good.files)
    swapped.set('artifacts/demo-server', present(item.good.files.get('artifacts/libdemo.so'), 'a file'))
    swapped.set('artifacts/libdemo.so', present(item.good.files.get('artifacts/demo-server'), 'a file'))
    expect(badChecks(await item.ask(swapped))).toEqual(['artifact-digests'])
    const without = new Map(item.good.files)
    without.delete('artifacts/demo-server')
    expect(reasonOf(await item.ask(without), 'artifact-digests')).toBe('artifacts/demo-server is missing')
    const extra = new Map(item.good.files).set('artifacts/extra', utf8('x'))
    const verdict = await item.ask(extra)
    expect(badChecks(verdict)).toEqual(['artifact-list'])
    expect(reasonOf(verdict, 'artifact-list')).toContain('artifacts/extra')
    const [first] = cargoRecord.artifacts
    const twice = await sampleResult({
      measurement: item.measurement,
      record: { artifacts: [present(first, 'one'), present(first, 'one')] },
    })
    twice.files.delete('artifacts/libdemo.so')
    expect(badChecks(await item.ask(twice.files))).toEqual(['artifact-digests'])
  })

  test('a strange file, and every file missing in turn', async () => {
    expect(badChecks(await item.ask(new Map(item.good.files).set('README', utf8('x'))))).toEqual(['result-files'])
    for (const path of item.good.files.keys()) {
      const rest = new Map(item.good.files)
      rest.delete(path)
      const verdict = await item.ask(rest)
      expect([path, verdict.ok]).toEqual([path, false])
      expect(verdict.firstBroken).toBe(path.startsWith('artifacts/') ? 'artifact-digests' : 'result-files')
    }
  })

  test('names that leave the directory', async () => {
    for (const name of ['../../etc/passwd', '/etc/passwd', '', '.']) {
      const strange = { ...present(cargoRecord.artifacts[0], 'an artifact'), name }
      const of = await sampleResult({ measurement: item.measurement, record: { artifacts: [strange] } })
      expect(badChecks(await item.ask(of.files))).toContain('artifact-digests')
    }
  })
})

// Goal: whatever stands in several documents is the same in each; the check that compares it says what differs.
describe('documents that repeat each other', () => {
  type Json = Record<string, unknown>
  type Statement = { buildDefinition: Json; runDetails: Json & { metadata: Json; builder: Json; byproducts: Json[] } }
  const lineOf = async (files: ReadonlyMap<string, Uint8Array>, name: string) => {
    const found = (await item.ask(files)).checks.find(check => check.name === name)
    return [found?.outcome, found?.reason, found?.required]
  }
  const changed = (path: string, change: (value: never) => void) => withJson(item.good.files, path, change)
  const dsse = 'attestations/slsa.dsse.json'
  const bundle = 'attestations/bundle.sigstore.json'

  test('goal: without a provenance none of them can be compared, which no verdict passes', async () => {
    const files = new Map(item.good.files)
    files.delete('provenance.json')
    for (const name of ['artifact-digests', 'artifact-list', 'dependency-digests', 'byproduct-digests', 'source']) {
      expect([name, await lineOf(files, name)]).toEqual([name, ['not-checked', 'provenance.json cannot be read', true]])
    }
  })

  test('goal: the envelope is of in-toto, of this statement, and by the keys of the receipts', async () => {
    const envelope = (change: (value: Json & { signatures: Json[] }) => void) => changed(dsse, change)
    const other = envelope(value => Object.assign(value, { payloadType: 'text/plain' }))
    const type = 'slsa.dsse.json: payloadType is not application/vnd.in-toto+json'
    expect(await lineOf(other, 'slsa-envelope')).toEqual(['fail', type, true])
    expect(await lineOf(other, 'sigstore-bundle')).toEqual(['fail', type, true])
    const payload = envelope(value => Object.assign(value, { payload: 'AAAA' }))
    expect((await lineOf(payload, 'slsa-envelope'))[1]).toBe(
      'slsa.dsse.json: its payload is not attestations/slsa.json',
    )
    const [named, ordered, more] = [
      envelope(({ signatures }) => Object.assign(present(signatures[1], 'one'), { keyid: 'x' })),
      envelope(({ signatures }) => void signatures.reverse()),
      envelope(({ signatures }) => void signatures.push({ ...signatures[0] })),
    ]
    for (const files of [named, ordered, more]) {
      expect((await lineOf(files, 'slsa-envelope'))[1]).toStartWith('the key ids are not ')
    }
    const forged = envelope(({ signatures }) => Object.assign(present(signatures[1], 'one'), { sig: 'AAAA' }))
    expect((await lineOf(forged, 'slsa-envelope'))[1]).toBe('not good: signature-mldsa65')
  })

  test('goal: the bundle has the first signature of the envelope, under its key id', async () => {
    type Bundle = {
      verificationMaterial: { publicKey: { hint: string } }
      dsseEnvelope: Json & { signatures: [Json] }
    }
    const of = async (change: (value: Bundle) => void) => await lineOf(changed(bundle, change), 'sigstore-bundle')
    expect(await of(value => Object.assign(value.verificationMaterial.publicKey, { hint: 'x' }))).toEqual([
      ...['fail', 'bundle.sigstore.json: its hint is not the key id', true],
    ])
    const differs = 'bundle.sigstore.json: its envelope is not the one of slsa.dsse.json'
    for (const change of [
      ({ dsseEnvelope }: Bundle) => Object.assign(dsseEnvelope.signatures[0], { keyid: 'x' }),
      ({ dsseEnvelope }: Bundle) => Object.assign(dsseEnvelope.signatures[0], { sig: 'AAAA' }),
      ({ dsseEnvelope }: Bundle) => Object.assign(dsseEnvelope, { payloadType: 'text/plain' }),
      ({ dsseEnvelope }: Bundle) => Object.assign(dsseEnvelope, { payload: 'AAAA' }),
    ]) {
      expect(await of(change)).toEqual(['fail', differs, true])
    }
    const bare = changed(dsse, (value: { signatures: Json[] }) => Object.assign(value, { signatures: [] }))
    expect((await lineOf(bare, 'sigstore-bundle'))[1]).toBe(differs)
  })

  test('goal: digests of dependencies are hexadecimal, of the length of their algorithm', async () => {
    const of = async (digest: Json) => {
      const files = changed('provenance.json', ({ predicate }: { predicate: Statement }) => {
        const { resolvedDependencies } = predicate.buildDefinition as { resolvedDependencies: Json[] }
        Object.assign(present(resolvedDependencies.at(-1), 'a dependency'), { digest })
      })
      return (await lineOf(files, 'dependency-digests'))[0]
    }
    for (const [name, digits] of [
      ['sha256', 64],
      ['sha512', 128],
      ['gitCommit', 40],
      ['gitCommit', 64],
    ] as const) {
      expect([name, digits, await of({ [name]: 'a'.repeat(digits) })]).toEqual([name, digits, 'pass'])
    }
    for (const digest of [
      { sha256: 'a'.repeat(63) },
      { sha256: 'A'.repeat(64) },
      { sha256: 'a'.repeat(128) },
      { sha512: 'a'.repeat(64) },
      { gitCommit: 'a'.repeat(128) },
      { gitCommit: 'a'.repeat(39) },
      { gitCommit: 'g'.repeat(40) },
    ]) {
      expect([digest, await of(digest)]).toEqual([digest, 'fail'])
    }
  })

  test('goal: the byproducts are five files, in their order, each by its SHA-256', async () => {
    const of = async (change: (byproducts: Json[]) => void) =>
      await lineOf(
        changed('provenance.json', ({ predicate }: { predicate: Statement }) =>
          change(predicate.runDetails.byproducts),
        ),
        'byproduct-digests',
      )
    const exact =
      'the byproducts are not attestations/slsa.json, attestations/slsa.dsse.json, attestations/bundle.sigstore.json, attestations/sbom.cdx.json, build.log, in this order'
    for (const change of [
      (list: Json[]) => void list.reverse(),
      (list: Json[]) => void list.pop(),
      (list: Json[]) => void list.push({ ...list[0] }),
      (list: Json[]) => void Object.assign(present(list[4], 'the log'), { name: 'other.log' }),
    ]) {
      expect(await of(change)).toEqual(['fail', exact, true])
    }
    const [, reason] = await of(list => void Object.assign(present(list[4], 'the log'), { digest: { sha512: 'a' } }))
    expect(reason).toEndWith(', the provenance has no SHA-256')
  })

  test('goal: the statement repeats provenance.json, the nonce and the receipts', async () => {
    const of = async (change: (predicate: Statement, whole: { subject: Json[] }) => void) =>
      await lineOf(
        changed('attestations/slsa.json', (value: { predicate: Statement; subject: Json[] }) =>
          change(value.predicate, value),
        ),
        'slsa-statement',
      )
    const words = (what: string) => [
      'fail',
      expect.stringMatching(new RegExp(`^${what} is .*"x.*, elsewhere "[^x]+`)),
      true,
    ]
    type Change = Parameters<typeof of>[0]
    const cases: readonly (readonly [string, Change])[] = [
      ['buildType', ({ buildDefinition }) => Object.assign(buildDefinition, { buildType: 'x' })],
      ['invocationId', ({ runDetails }) => Object.assign(runDetails.metadata, { invocationId: 'x' })],
      ['builder', ({ runDetails }) => Object.assign(runDetails.builder, { id: 'x' })],
      ['startedOn', ({ runDetails }) => Object.assign(runDetails.metadata, { startedOn: 'x' })],
      ['finishedOn', ({ runDetails }) => Object.assign(runDetails.metadata, { finishedOn: 'x' })],
      ['nonce', ({ buildDefinition }) => Object.assign(buildDefinition.externalParameters as Json, { nonce: 'x' })],
      [
        'network policy',
        ({ buildDefinition }) => Object.assign(buildDefinition.internalParameters as Json, { networkPolicy: 'x' }),
      ],
      [
        'measurement',
        ({ runDetails }) => {
          const [image] = runDetails.builder.builderDependencies as { annotations: Json }[]
          Object.assign(present(image, 'an image').annotations, { measurement: 'x' })
        },
      ],
    ]
    for (const [what, change] of cases) expect([what, await of(change)]).toEqual([what, words(what)])
    const swapped = await of((_, { subject }) => void subject.reverse())
    expect(swapped).toEqual(['fail', expect.stringMatching(/^subject is ".*", elsewhere "/), true])
    const bare = await of(({ runDetails }) => Object.assign(runDetails.builder, { builderDependencies: [] }))
    expect(bare[1]).toBe('slsa.json: builderDependencies: no image with a measurement')
    // Any nonce is that of the completion.
    const upper = await item.ask(item.good.files, { nonce: 'any' })
    expect(upper.checks.find(({ name }) => name === 'slsa-statement')?.outcome).toBe('pass')
  })

  test('goal: an IGVM file or image of the caller pins the measurement, and the age of the floors can be waived', async () => {
    const pin = async (ownImage: boolean) => {
      const { checks } = await item.ask(item.good.files, { ownImage })
      const { outcome, reason } = present(
        checks.find(({ name }) => name === 'pin-measurement'),
        'the pin',
      )
      return [outcome, reason]
    }
    expect(await pin(true)).toEqual(['pass', 'those of the IGVM file'])
    expect((await pin(false))[0]).toBe('fail')
    const names = async (tcb: 'required' | 'any') => {
      const pins = { measurement: 'required', vmpl: 'required', crl: 'required', tcb } as const
      return (await item.ask(item.good.files, { pins })).checks
        .map(({ name }) => name)
        .filter(name => name.includes('floor'))
    }
    expect(await names('required')).toEqual([
      ...['tcb-floor-age', 'dispatch/tcb-floor', 'completion/tcb-floor', 'report/tcb-floor'],
    ])
    expect(await names('any')).toEqual([])
  })

  test('goal: shapes of VMs whose names are malformed, or whose processor is not known, give no digest', async () => {
    const whole = item.bootImage({ whole: true })
    const boot = present(whole.boot, 'boot')
    const of = async (shapes: readonly string[]) => {
      const verdict = await item.ask(item.good.files, { igvm: 'any', image: { ...whole, boot: { ...boot, shapes } } })
      return reasonOf(verdict, 'launch-measurement')
    }
    for (const shape of ['qemu-kvm/bios/EPYC-v4', 'qemu-kvm/bios/EPYC-v4/0', 'qemu-kvm/bios/toString/2', 'x']) {
      expect([shape, await of([shape])]).toEqual([
        shape,
        expect.stringMatching(/^the report has [0-9a-f]{96}, the image gives nothing: no loader takes it$/),
      ])
    }
    expect(await of([])).toBe('image: its manifest names no VM that it can be launched as')
  })
})
