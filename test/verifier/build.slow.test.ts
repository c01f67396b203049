import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { measureIgvm } from '../../src/attest/igvm/measure.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { prettyJson } from '../../src/attest/provenance/json.ts'
import { makeHybridKeys } from '../../src/attest/receipt/hybrid-keys.ts'
import { present } from '../../src/base/assert.ts'
import { fromHex, fromUtf8, utf8 } from '../../src/base/bytes.ts'
import { type BuildVerdict, verifyBuild } from '../../src/verifier/build.ts'
import type { BootImage, BuildQuestion } from '../../src/verifier/build-question.ts'
import { writeBuilderImage } from '../rigs/build-image-directory.ts'
import { cargoRecord, nixRecord } from '../rigs/build-record.ts'
import {
  buildQuestion,
  type ResultChanges,
  resultFiles,
  type SampleResult,
  sampleResult,
} from '../rigs/build-result.ts'
import { countingRandom } from '../rigs/receipt-samples.ts'

const directory = mkdtempSync(join(tmpdir(), `srt-${process.pid}-build-`))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

let good: SampleResult
let igvm: Uint8Array
let image: Awaited<ReturnType<typeof writeBuilderImage>>
let measurement: Uint8Array

beforeAll(async () => {
  image = await writeBuilderImage(directory)
  igvm = new Uint8Array(readFileSync(image.igvm))
  measurement = (await measureIgvm(igvm, { profile: 'qemu-kvm' })).digest
  good = await sampleResult({ measurement })
})

const hashes = {
  sha256: (bytes: Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes)),
  sha384: (bytes: Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha384', bytes)),
}

function bootImage(changes: { disk?: Uint8Array; cmdline?: string; whole?: boolean } = {}): BootImage {
  const disk = changes.disk ?? image.disk
  const file = (name: string) => new Uint8Array(readFileSync(join(directory, name)))
  return {
    cmdline: utf8(changes.cmdline ?? image.cmdline),
    disk: { read: async (offset, length) => disk.slice(offset, offset + length) },
    boot:
      changes.whole === true
        ? {
            ...{ firmware: file('firmware'), kernel: file('kernel'), initrd: file('initrd') },
            shapes: Object.keys(image.manifest.launchDigests),
          }
        : null,
  }
}

/** Of one who has the IGVM file and the image. */
async function ask(
  files: ReadonlyMap<string, Uint8Array>,
  changes: Partial<BuildQuestion> = {},
): Promise<BuildVerdict> {
  const question = await buildQuestion(good.nonce, {
    ...{
      policy: { ...(await buildQuestion(good.nonce)).policy, measurements: 'any' },
      igvm,
      image: bootImage(),
      hashes,
    },
    ...changes,
  })
  return await verifyBuild(resultFiles(files), question)
}

const bad = ({ checks }: BuildVerdict) =>
  checks.filter(one => one.outcome === 'fail' || (one.outcome === 'not-checked' && one.required)).map(one => one.name)

const reason = ({ checks }: BuildVerdict, name: string) =>
  present(
    checks.find(one => one.name === name),
    name,
  ).reason

function changed(path: string, change: (bytes: Uint8Array) => Uint8Array, files = good.files): Map<string, Uint8Array> {
  return new Map(files).set(path, change(present(files.get(path), path)))
}

const flipped = (bytes: Uint8Array, at: number): Uint8Array => {
  const copy = bytes.slice()
  copy[at] = (copy[at] ?? 0) ^ 1
  return copy
}

function json(path: string, change: (value: never) => void, files = good.files): Map<string, Uint8Array> {
  return changed(
    path,
    bytes => {
      const value = JSON.parse(fromUtf8(bytes)) as never
      change(value)
      return prettyJson(value)
    },
    files,
  )
}

describe('a good result', () => {
  test('passes whole, with the IGVM file and the image', async () => {
    // Goal: every check is made but the pins that this test's policy leaves open, and the levels reached are said.
    const verdict = await ask(good.files)
    expect(bad(verdict)).toEqual([])
    expect([verdict.ok, verdict.firstBroken, verdict.simulated, verdict.isOwn]).toEqual([true, null, true, true])
    expect(verdict.checks.filter(one => one.outcome !== 'pass').map(one => one.name)).toEqual([
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
    for (const shape of Object.values(image.manifest.launchDigests)) {
      const of = await sampleResult({ measurement: present(fromHex(shape), 'a digest') })
      const verdict = await ask(of.files, { igvm: 'any', image: bootImage({ whole: true }) })
      expect(bad(verdict)).toEqual([])
    }
  })

  test('passes without either, when the policy names the measurement', async () => {
    const base = await buildQuestion(good.nonce)
    const policy = { ...base.policy, measurements: [measurement] }
    const verdict = await ask(good.files, { policy, igvm: 'any', image: 'any' })
    expect(bad(verdict)).toEqual([])
    expect(verdict.slsa.missing).toEqual(['the platform is simulated: no hardware'])
  })

  test('passes for a Nix build with a short nonce, whose length is bound', async () => {
    // Goal: a nonce of 2 bytes needs no report of the family; padded or cut it is another nonce.
    const nix = await sampleResult({ record: nixRecord, measurement })
    expect(bad(await ask(nix.files, { nonce: nix.nonce }))).toEqual([])
    for (const other of ['00', '000100', '00010000000000000000000000000000']) {
      const verdict = await ask(nix.files, { nonce: present(fromHex(other), 'hex') })
      expect(bad(verdict)).toContain('dispatch/nonce')
      expect(verdict.firstBroken).toBe('dispatch/nonce')
    }
  })

  test('any nonce is accepted by who asks for that, if it is one', async () => {
    expect(bad(await ask(good.files, { nonce: 'any' }))).toEqual([])
    const two = await sampleResult({ measurement, completion: { nonce: Uint8Array.of(1) } })
    expect(bad(await ask(two.files, { nonce: 'any' }))).toContain('completion/nonce')
  })
})

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
    const { length } = present(good.files.get(path), path)
    for (const at of [0, Math.floor(length / 2), length - 1]) {
      const verdict = await ask(changed(path, bytes => flipped(bytes, at)))
      expect(verdict.ok).toBe(false)
      expect(verdict.firstBroken).toBe(line)
      expect(reason(verdict, line)).toContain(path)
    }
  })

  test('provenance.json: in a value, and anywhere', async () => {
    const path = 'provenance.json'
    const verdict = await ask(changed(path, bytes => utf8(fromUtf8(bytes).replace('cargo build', 'cargo bvild'))))
    expect(verdict.firstBroken).toBe('completion/provenance-digest')
    expect(bad(verdict)).toEqual(['completion/provenance-digest', 'report/provenance-digest'])
    const { length } = present(good.files.get(path), path)
    for (let at = 0; at < length; at += 97) expect((await ask(changed(path, one => flipped(one, at)))).ok).toBe(false)
  })

  test('evidence.json: anywhere', async () => {
    const path = 'evidence.json'
    const { length } = present(good.files.get(path), path)
    for (let at = 0; at < length; at += 1499) expect((await ask(changed(path, one => flipped(one, at)))).ok).toBe(false)
  })

  test('the IGVM file: one byte of a page', async () => {
    // Goal: whatever page it is, the digest is another, and the line says so.
    const page = igvm.length - 4096 * 3 + 100
    const verdict = await ask(good.files, { igvm: flipped(igvm, page) })
    expect(verdict.ok).toBe(false)
    expect(verdict.firstBroken).toBe('launch-measurement')
    expect(reason(verdict, 'launch-measurement')).toContain('the IGVM file gives')
  })

  test('the disk: one data block, its superblock and its tree untouched', async () => {
    const verdict = await ask(good.files, { image: bootImage({ disk: flipped(image.disk, 4096 * 123 + 7) }) })
    expect(bad(verdict)).toEqual(['image-root-hash'])
    expect(verdict.firstBroken).toBe('image-root-hash')
    expect(reason(verdict, 'image-root-hash')).toContain('verity-root')
  })

  test('the disk: superblock, and stored tree', async () => {
    for (const at of [300 * 4096 + 72, 300 * 4096 + 88, 301 * 4096, 302 * 4096 + 40]) {
      expect(bad(await ask(good.files, { image: bootImage({ disk: flipped(image.disk, at) }) }))).toEqual([
        'image-root-hash',
      ])
    }
    const cut = image.disk.subarray(0, 4096 * 200)
    expect(bad(await ask(good.files, { image: bootImage({ disk: cut }) }))).toEqual(['image-root-hash'])
  })
})

describe('the command line', () => {
  test('another one is not the one in the IGVM file', async () => {
    // Goal: a disk with a good tree of its own is no use: the launch digest covers the command line, which names the root hash.
    const other = `${image.cmdline} init=/bin/sh`
    const verdict = await ask(good.files, { image: bootImage({ cmdline: other }) })
    expect(bad(verdict)).toEqual(['igvm-cmdline', 'image-root-hash'])
    const whole = { ...bootImage({ whole: true }), cmdline: utf8(other) }
    expect(bad(await ask(good.files, { igvm: 'any', image: whole }))).toContain('launch-measurement')
  })

  test('an image alone, of which nothing says that it was launched, is not enough', async () => {
    const base = await buildQuestion(good.nonce)
    const policy = { ...base.policy, measurements: [measurement] }
    const verdict = await ask(good.files, { policy, igvm: 'any', image: bootImage() })
    expect(bad(verdict)).toEqual(['launch-cmdline', 'image-root-hash'])
  })

  test.each([
    ['twice', (line: string) => `${line} strongroom.root_hash=${'0'.repeat(64)}`],
    ['missing', (line: string) => line.replace('strongroom.salt', 'salt')],
    ['malformed', (line: string) => line.replace(/data_blocks=\d+/, 'data_blocks=0x12')],
  ])('a word of dm-verity %s', async (_, change) => {
    const dir = mkdtempSync(join(directory, 'cmdline-'))
    const cmdline = change(image.cmdline)
    const { launchDigest } = await import('../../src/attest/launch/digest.ts')
    const parts = { ...bootImage({ whole: true }), cmdline: utf8(cmdline) }
    const boot = present(parts.boot, 'boot')
    const cpus = { vcpus: 2, vcpuType: 'EPYC-v4', features: 1n, profile: 'qemu-kvm', vehicle: 'bios' } as const
    const { digest } = await launchDigest({ ...boot, cmdline, ...cpus })
    const of = await sampleResult({ measurement: digest })
    expect(bad(await ask(of.files, { igvm: 'any', image: parts }))).toEqual(['cmdline-root-hash', 'image-root-hash'])
    rmSync(dir, { recursive: true })
  })
})

describe('the list of files', () => {
  test('an unknown field in provenance.json', async () => {
    const verdict = await ask(json('provenance.json', value => Object.assign(value, { note: 'x' })))
    expect(verdict.firstBroken).toBe('provenance-format')
    expect(reason(verdict, 'provenance-format')).toContain('"note"')
  })

  test('an artifact swapped, missing, added, and one that is named twice', async () => {
    const swapped = new Map(good.files)
    swapped.set('artifacts/demo-server', present(good.files.get('artifacts/libdemo.so'), 'a file'))
    swapped.set('artifacts/libdemo.so', present(good.files.get('artifacts/demo-server'), 'a file'))
    expect(bad(await ask(swapped))).toEqual(['artifact-digests'])
    const without = new Map(good.files)
    without.delete('artifacts/demo-server')
    expect(reason(await ask(without), 'artifact-digests')).toBe('artifacts/demo-server is missing')
    const extra = new Map(good.files).set('artifacts/extra', utf8('x'))
    const verdict = await ask(extra)
    expect(bad(verdict)).toEqual(['artifact-list'])
    expect(reason(verdict, 'artifact-list')).toContain('artifacts/extra')
    const [first] = cargoRecord.artifacts
    const twice = await sampleResult({
      measurement,
      record: { artifacts: [present(first, 'one'), present(first, 'one')] },
    })
    twice.files.delete('artifacts/libdemo.so')
    expect(bad(await ask(twice.files))).toEqual(['artifact-digests'])
  })

  test('a strange file, and every file missing in turn', async () => {
    expect(bad(await ask(new Map(good.files).set('README', utf8('x'))))).toEqual(['result-files'])
    for (const path of good.files.keys()) {
      const rest = new Map(good.files)
      rest.delete(path)
      const verdict = await ask(rest)
      expect([path, verdict.ok]).toEqual([path, false])
      expect(verdict.firstBroken).toBe(path.startsWith('artifacts/') ? 'artifact-digests' : 'result-files')
    }
  })

  test('names that leave the directory', async () => {
    for (const name of ['../../etc/passwd', '/etc/passwd', '', '.']) {
      const one = { ...present(cargoRecord.artifacts[0], 'an artifact'), name }
      const of = await sampleResult({ measurement, record: { artifacts: [one] } })
      expect(bad(await ask(of.files))).toContain('artifact-digests')
    }
  })
})

describe('receipts', () => {
  const without = (name: string) =>
    json('evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom[name] = null
    })

  test('one or both dropped', async () => {
    expect((await ask(without('dispatch'))).firstBroken).toBe('dispatch/evidence')
    expect((await ask(without('completion'))).firstBroken).toBe('completion/evidence')
    const neither = json('evidence.json', (value: Record<string, unknown>) =>
      Reflect.deleteProperty(value, 'strongroom'),
    )
    const verdict = await ask(neither)
    expect(verdict.firstBroken).toBe('receipts')
    expect(verdict.ok).toBe(false)
    const swapped = json('evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      const { dispatch, completion } = value.strongroom
      value.strongroom = { dispatch: completion, completion: dispatch }
    })
    expect(bad(await ask(swapped))).toContain('dispatch/kind')
  })

  test('the report of the family dropped', async () => {
    const gone = json('evidence.json', (value: { evidence: unknown }) => {
      value.evidence = null
    })
    expect(bad(await ask(gone))).toEqual(['report/evidence'])
  })

  test('another nonce', async () => {
    const nonce = flipped(good.nonce, 3)
    const verdict = await ask(good.files, { nonce })
    expect(verdict.firstBroken).toBe('dispatch/nonce')
    expect(bad(verdict)).toEqual(['dispatch/nonce', 'completion/nonce', 'report/nonce', 'slsa-statement'])
    expect(bad(await ask(good.files, { nonce: good.nonce.subarray(0, 15) }))).toContain('completion/nonce')
  })

  const other = new Uint8Array(32).fill(0xaa)
  const lies: readonly [what: string, changes: ResultChanges, line: string][] = [
    ['the dispatch of another job', { dispatch: { jobId: 'another' } }, 'dispatch/job'],
    ['another source at the dispatch', { dispatch: { sourceDigest: other } }, 'dispatch/source'],
    ['another source at the completion', { completion: { sourceDigest: other } }, 'completion/source'],
    ['another dispatch', { completion: { dispatchDigest: other } }, 'completion/chained'],
    ['another network policy', { completion: { networkPolicy: 'open' } }, 'completion/network-policy'],
    ['another provenance', { completion: { provenanceDigest: other } }, 'completion/provenance-digest'],
    ['a nonce cut short', { completion: { nonce: other.subarray(0, 8) } }, 'completion/nonce'],
    ['a report of another VM', { familyReport: { report: { reportId: other } } }, 'report/one-vm'],
    ['a report over more', { familyReport: { reportData: new Uint8Array(64).fill(1) } }, 'report/report-data'],
  ]
  test.each(lies)('%s', async (_, changes, line) => {
    // Goal: whoever has the VM's keys cannot put together what does not belong together.
    const of = await sampleResult({ measurement, ...changes })
    const verdict = await ask(of.files)
    expect(verdict.ok).toBe(false)
    expect(verdict.firstBroken).toBe(line)
  })

  test('the receipt of another VM', async () => {
    // Goal: a dispatch by other keys, good by itself, is not of this build.
    const keys = makeHybridKeys(countingRandom(200))
    const of = await sampleResult({ measurement, keys })
    const mixed = json('evidence.json', (value: { strongroom: Record<string, unknown> }) => {
      value.strongroom.dispatch = of.dispatch
    })
    expect(bad(await ask(mixed))).toEqual(['completion/chained', 'one-vm'])
  })

  test('envelope and bundle by other keys', async () => {
    // Goal: their signatures count only under the keys for which the hardware vouches.
    const keys = makeHybridKeys(countingRandom(201))
    const of = await sampleResult({ measurement, keys })
    const files = new Map(of.files)
    const mixed = json(
      'evidence.json',
      (value: { strongroom: Record<string, unknown> }) => {
        value.strongroom = { dispatch: good.dispatch, completion: good.completion }
      },
      files,
    )
    expect(bad(await ask(mixed))).toContain('slsa-envelope')
  })

  test('another measurement, another root, no pin', async () => {
    const elsewhere = await sampleResult({ measurement: new Uint8Array(48).fill(1) })
    expect((await ask(elsewhere.files)).firstBroken).toBe('launch-measurement')
    const base = await buildQuestion(good.nonce)
    const pinned = await ask(elsewhere.files, { policy: { ...base.policy, measurements: [measurement] } })
    expect(pinned.firstBroken).toBe('dispatch/measurement')
    expect((await ask(good.files, { roots: AMD_ROOTS })).firstBroken).toBe('dispatch/evidence')
    const unpinned = await ask(good.files, { igvm: 'any', image: 'any' })
    expect(bad(unpinned)).toEqual(['pin-measurement'])
  })

  test('what is no receipt and no result', async () => {
    for (const junk of [1, 'x', [], {}, { evidence: 1 }, { evidence: {} }]) {
      const files = json('evidence.json', (value: { strongroom: Record<string, unknown> }) => {
        value.strongroom.completion = junk
      })
      expect((await ask(files)).ok).toBe(false)
    }
    expect((await ask(new Map())).ok).toBe(false)
    expect((await ask(good.files, { igvm: Uint8Array.of(1, 2, 3) })).ok).toBe(false)
  })
})

describe('real results of another builder', () => {
  // Goal: kettle's own, made on Azure: read, and judged by the same rules. Their artifacts are not here, but for their digests.
  const builds = join(import.meta.dir, '../vectors/builds')
  const read = (name: string, file: string) => new Uint8Array(readFileSync(join(builds, name, file)))

  async function askVector(
    name: string,
    changes: Partial<BuildQuestion> = {},
    files = new Map<string, Uint8Array>(['provenance.json', 'evidence.json'].map(file => [file, read(name, file)])),
    artifact: string | null = null,
  ): Promise<BuildVerdict> {
    const { subject } = JSON.parse(fromUtf8(read(name, 'provenance.json')))
    const found = resultFiles(files)
    const digests = new Map(found.digests).set(`artifacts/${subject[0].name}`, artifact ?? subject[0].digest.sha256)
    return await verifyBuild(
      { ...found, digests },
      {
        ...{ nonce: 'any', asOf: Date.UTC(2026, 5, 1), roots: AMD_ROOTS, policy: strictPolicy(), crl: undefined },
        pins: { measurement: 'any', vmpl: 'required', crl: 'any', tcb: 'any' },
        ...{ igvm: 'any', image: 'any' },
        ...changes,
      },
    )
  }

  test.each(['kex', 'ripgrep', 'alejandra'])('%s', async name => {
    const verdict = await askVector(name)
    expect(bad(verdict)).toEqual([])
    expect([verdict.ok, verdict.isOwn, verdict.simulated, verdict.report?.tpm]).toEqual([
      true,
      false,
      false,
      'vtpm:paravisor-bound',
    ])
    expect(verdict.slsa.build).toBeNull()
    // They were made without a nonce.
    const asked = await askVector(name, { nonce: new Uint8Array(16).fill(1) })
    expect(bad(asked)).toEqual(['report/nonce'])
    expect(
      bad(await askVector(name, { pins: { measurement: 'required', vmpl: 'required', crl: 'any', tcb: 'any' } })),
    ).toEqual(['pin-measurement'])
  })

  test('nothing of them can be changed', async () => {
    const files = new Map<string, Uint8Array>(
      ['provenance.json', 'evidence.json'].map(file => [file, read('kex', file)]),
    )
    const change = (file: string, from: string, to: string) =>
      askVector(
        'kex',
        {},
        changed(file, bytes => utf8(fromUtf8(bytes).replace(from, to)), files),
      )
    expect(bad(await change('provenance.json', 'cargo build', 'cargo bvild'))).toEqual(['report/provenance-digest'])
    expect(bad(await change('evidence.json', 'e15c4479', 'e15c4478'))).toEqual(['report/tpm'])
    expect(bad(await change('evidence.json', '"message":"ff54434780180022', '"message":"ff54434780180023'))).toContain(
      'report/evidence',
    )
    expect(bad(await change('evidence.json', '"signature":"1c', '"signature":"1d'))).toEqual(['report/tpm'])
    expect(bad(await askVector('kex', {}, files, '0'.repeat(64)))).toEqual(['artifact-digests'])
    // The evidence of another build.
    const mixed = new Map(files).set('evidence.json', read('ripgrep', 'evidence.json'))
    expect(bad(await askVector('kex', {}, mixed))).toEqual(['report/provenance-digest'])
  })
})
