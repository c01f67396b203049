// Provenance of a guest image, and the summary of its verification: what is written, what is read, and what is refused.

import { describe, expect, test } from 'bun:test'
import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto'
import { Malformed } from '../../../src/attest/malformed.ts'
import { preAuthEncoding, readDsse } from '../../../src/attest/provenance/dsse.ts'
import {
  type FoundImage,
  type ImageBuild,
  imageProvenance,
  imageProvenanceProblem,
  readImageProvenance,
} from '../../../src/attest/provenance/image.ts'
import { prettyJson } from '../../../src/attest/provenance/json.ts'
import { readSummary, signSummary, summaryBytes, summaryKeyId } from '../../../src/attest/provenance/summary.ts'
import { fromUtf8, utf8 } from '../../../src/base/bytes.ts'

const hex = (byte: string) => byte.repeat(32)
const files = [
  { path: 'firmware.fd', sha256: hex('01') },
  { path: 'kernel', sha256: hex('02') },
  { path: 'root.img', sha256: hex('03') },
]
const build: ImageBuild = {
  recipe: 'builder',
  variant: null,
  inputsSha256: hex('04'),
  sourceDateEpoch: 1_792_800_000,
  tools: { bun: '1.4.5', tar: '1.35' },
  packagesLockSha256: hex('05'),
  packages: [
    {
      name: 'libstdc++6',
      version: '14.2.0-19+b1',
      role: 'root',
      archive: 'debian',
      file: 'pool/main/g/gcc-14/libstdc++6_14.2.0-19+b1_amd64.deb',
      sha256: hex('06'),
    },
  ],
  executable: { name: 'strongroom-guest', sha256: hex('07'), madeOf: { bunSha256: hex('08') } },
  npmPackages: [{ package: 'opencode-linux-x64', version: '1.2.3', sha512: '09'.repeat(64) }],
  output: { manifestSha256: hex('0a'), files, root: 'root.img', rootHash: hex('0b') },
}
const image: FoundImage = { ...build.output, name: 'builder', inputsSha256: hex('04') }
const json = (bytes: Uint8Array) => JSON.parse(fromUtf8(bytes))
const problemOf = (changed: Partial<ImageBuild>, of: Partial<FoundImage> = {}) =>
  imageProvenanceProblem(readImageProvenance(imageProvenance({ ...build, ...changed })), { ...image, ...of })

describe('provenance of an image', () => {
  test('names every file, every locked package and the inputs, and claims no more than it is', () => {
    // Goal: a reader who knows SLSA learns what went in, what came out, and that nobody has signed it.
    const { _type, subject, predicateType, predicate } = json(imageProvenance(build))
    expect([_type, predicateType]).toEqual(['https://in-toto.io/Statement/v1', 'https://slsa.dev/provenance/v1'])
    expect(subject).toEqual([
      { name: 'firmware.fd', digest: { sha256: hex('01') } },
      { name: 'kernel', digest: { sha256: hex('02') } },
      { name: 'manifest.json', digest: { sha256: hex('0a') } },
      { name: 'root.img', digest: { sha256: hex('03'), dmVeritySha256: hex('0b') } },
    ])
    const { externalParameters, internalParameters, resolvedDependencies } = predicate.buildDefinition
    expect(externalParameters).toEqual({ recipe: 'builder', variant: null })
    expect(internalParameters.slsa).toEqual({
      build: 'SLSA_BUILD_LEVEL_1',
      missing: ['not signed', 'built by no hosted platform'],
    })
    expect(predicate.runDetails.builder.id).toBe('urn:strongroom:image-builder:local-unsigned')
    expect(resolvedDependencies.map(({ name }: { name: string }) => name)).toEqual([
      ...['inputs', 'packages.lock.json', 'strongroom-guest', 'opencode-linux-x64', 'libstdc++6'],
    ])
    expect(resolvedDependencies.at(-1)).toEqual({
      name: 'libstdc++6',
      uri: 'pkg:deb/debian/libstdc%2B%2B6@14.2.0-19%2Bb1?arch=amd64',
      digest: { sha256: hex('06') },
      annotations: { archive: 'debian', file: build.packages[0]?.file, role: 'root' },
    })
  })

  test('is the same bytes for the same build', () => {
    // Goal: no time and no machine stands in it, so that images stay reproducible whole.
    const again = { ...build, output: { ...build.output, files: files.toReversed() } }
    expect(fromUtf8(imageProvenance(again))).toBe(fromUtf8(imageProvenance(build)))
  })

  test('is of its own image alone', () => {
    // Goal: each digest counts, and the first that differs is named.
    expect(problemOf({})).toBeNull()
    expect(problemOf({ variant: 'staging' })).toBe('it is of the image staging, the manifest of builder')
    expect(problemOf({ variant: 'staging' }, { name: 'staging' })).toBeNull()
    expect(problemOf({ inputsSha256: hex('ff') })).toContain('inputs are ffff')
    const output = (changed: Partial<ImageBuild['output']>) => ({ output: { ...build.output, ...changed } })
    expect(problemOf(output({ manifestSha256: hex('ff') }))).toContain('manifest.json: sha256 is ffff')
    expect(problemOf(output({ rootHash: hex('ff') }))).toContain('root.img: dmVeritySha256 is ffff')
    expect(problemOf(output({ root: 'kernel' }))).toContain('kernel: dmVeritySha256 is 0b0b')
    expect(problemOf(output({ files: files.slice(1) }))).toBe(
      'its subject is kernel, manifest.json, root.img, the image has firmware.fd, kernel, manifest.json, root.img',
    )
    for (const [at, { path }] of files.entries()) {
      const flipped = files.map((file, index) => (index === at ? { path, sha256: hex('ff') } : file))
      expect(problemOf(output({ files: flipped }))).toContain(`${path}: sha256 is ffff`)
    }
  })

  test('is read in the one form that is written', () => {
    // Goal: nothing that an image's maker did not write is taken for its provenance, a result's least of all.
    const sound = json(imageProvenance(build))
    const refused: [string, (statement: typeof sound) => void][] = [
      ['_type', item => Reflect.set(item, '_type', 'x')],
      ['predicateType', item => Reflect.set(item, 'predicateType', 'https://slsa.dev/verification_summary/v1')],
      ['buildType', item => Reflect.set(item.predicate.buildDefinition, 'buildType', 'urn:strongroom:build:cargo:v1')],
      ['id is', item => Reflect.set(item.predicate.runDetails.builder, 'id', 'https://builds.example')],
      ['unknown field', item => Reflect.set(item, 'extra', 1)],
      ['unknown field', item => Reflect.set(item.subject[0], 'extra', 1)],
      ['no digest', item => Reflect.set(item.subject[0], 'digest', {})],
      ['no digest', item => Reflect.set(item.subject[0].digest, 'sha256', 'xyz')],
      ['no digest', item => Reflect.set(item.predicate.buildDefinition.resolvedDependencies[4], 'digest', {})],
      ['inputs', item => item.predicate.buildDefinition.resolvedDependencies.shift()],
      [
        'inputs',
        item =>
          item.predicate.buildDefinition.resolvedDependencies.push({ name: 'inputs', digest: { sha256: hex('ff') } }),
      ],
      ['no recipe', item => Reflect.deleteProperty(item.predicate.buildDefinition.externalParameters, 'recipe')],
    ]
    for (const [named, change] of refused) {
      const changed = structuredClone(sound)
      change(changed)
      expect(() => readImageProvenance(prettyJson(changed)), named).toThrow(Malformed)
      expect(() => readImageProvenance(prettyJson(changed))).toThrow(named)
    }
    expect(() => readImageProvenance(utf8('{"_type":"a","_type":"b"}'))).toThrow(Malformed)
    expect(() => readImageProvenance(new Uint8Array(5_000_000))).toThrow('bytes')
  })
})

describe('its verification summary', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  const spki = new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }))
  const p1363 = { name: 'ECDSA', namedCurve: 'P-384' } as const
  const signer = {
    spki,
    sign: async (message: Uint8Array) => {
      const pkcs8 = new Uint8Array(privateKey.export({ type: 'pkcs8', format: 'der' }))
      const key = await crypto.subtle.importKey('pkcs8', pkcs8, p1363, false, ['sign'])
      return new Uint8Array(await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-384' }, key, Uint8Array.from(message)))
    },
  }
  const summary = {
    name: 'builder',
    subject: readImageProvenance(imageProvenance(build)).subject,
    provenanceSha256: hex('0c'),
    verifierId: `urn:strongroom:host:${'0d'.repeat(48)}`,
    version: '0.1.0',
  }
  const statement = summaryBytes(summary, Date.UTC(2026, 10, 22, 8))

  test('says what was verified against what, by whom and to which level', () => {
    // Goal: exactly the fields of the specification; no level of the build environment's track, for which the
    // provenance is too weak.
    const { _type, subject, predicateType, predicate } = json(statement)
    expect([_type, predicateType]).toEqual([
      'https://in-toto.io/Statement/v1',
      'https://slsa.dev/verification_summary/v1',
    ])
    expect(subject).toEqual(summary.subject)
    const { policy, ...rest } = predicate
    expect(policy).toEqual({
      uri: 'urn:strongroom:image-policy:v1',
      digest: { sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
    })
    expect(rest).toEqual({
      verifier: { id: summary.verifierId, version: { strongroom: '0.1.0' } },
      timeVerified: '2026-11-22T08:00:00.000Z',
      resourceUri: 'urn:strongroom:image:builder',
      inputAttestations: [{ uri: 'provenance.json', digest: { sha256: hex('0c') } }],
      verificationResult: 'PASSED',
      verifiedLevels: ['SLSA_BUILD_LEVEL_1'],
      slsaVersion: '1.2',
    })
  })

  test('is signed as verifiers of DSSE check it, and reads as it was written', async () => {
    // Goal: ECDSA in DER over the pre-authentication encoding, whatever the signature's numbers are.
    for (let turn = 0; turn < 40; turn += 1) {
      const bytes = await signSummary(statement, signer)
      const { payloadType, payload, signatures } = readDsse(bytes)
      const [signature] = signatures
      if (signature === undefined) throw new Error('no signature')
      expect([signatures.length, signature.keyid]).toEqual([1, summaryKeyId(spki)])
      const key = createPublicKey({ key: Buffer.from(spki), format: 'der', type: 'spki' })
      expect(verify('sha384', preAuthEncoding(payloadType, payload), key, signature.sig)).toBe(true)
      if (turn > 0) continue
      expect(payload).toEqual(statement)
      expect(readSummary(bytes)).toEqual({
        ...summary,
        keyId: summaryKeyId(spki),
        timeVerified: '2026-11-22T08:00:00.000Z',
      })
    }
  })

  test('has its numbers in their shortest form', async () => {
    // Goal: leading zeros and a high first bit, which one signature in hundreds has, are as DER wants them.
    const derOf = async (r: number[], s: number[]) => {
      const pad = (digits: number[]) => [...new Array(48 - digits.length).fill(0), ...digits]
      const sign = async () => Uint8Array.from([...pad(r), ...pad(s)])
      const [signature] = readDsse(await signSummary(statement, { spki, sign })).signatures
      return [...(signature?.sig ?? [])]
    }
    expect(await derOf([1], [0x80])).toEqual([0x30, 7, 2, 1, 1, 2, 2, 0, 0x80])
    expect(await derOf([0], [0x7f, 0])).toEqual([0x30, 7, 2, 1, 0, 2, 2, 0x7f, 0])
    const long = new Array(48).fill(0xff)
    expect(await derOf(long, long)).toEqual([0x30, 102, 2, 49, 0, ...long, 2, 49, 0, ...long])
    const short = signSummary(statement, { spki, sign: async () => new Uint8Array(95) })
    expect(short).rejects.toThrow(Malformed)
  })

  test('that is of something else is refused', async () => {
    // Goal: no other attestation in our directory is handed out as the summary of an image.
    const sound = json(statement)
    const refused: [string, (item: typeof sound) => void][] = [
      ['of another type', item => Reflect.set(item, 'predicateType', 'https://slsa.dev/provenance/v1')],
      ['resourceUri', item => Reflect.set(item.predicate, 'resourceUri', 'urn:strongroom:image:../x')],
      ['not one attestation', item => Reflect.set(item.predicate, 'inputAttestations', [])],
    ]
    for (const [named, change] of refused) {
      const changed = structuredClone(sound)
      change(changed)
      const bytes = await signSummary(prettyJson(changed), signer)
      expect(() => readSummary(bytes)).toThrow(named)
    }
  })
})
