import { describe, expect, test } from 'bun:test'
import { createPublicKey } from 'node:crypto'
import { join } from 'node:path'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { bundleFromJSON, isBundleWithDsseEnvelope } from '@sigstore/bundle'
import nacl from 'tweetnacl'
import { cargoRecord, nixRecord, pnpmRecord } from '../../../scripts/rigs/build/record.ts'
import { countingRandom, sampleKeys } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { readBundle } from '../../../src/attest/provenance/bundle.ts'
import { envelopeKeyId, preAuthEncoding, readDsse, spkiOf } from '../../../src/attest/provenance/dsse.ts'
import { familyReportData, readEvidence } from '../../../src/attest/provenance/evidence.ts'
import { fileSha256, prettyJson } from '../../../src/attest/provenance/json.ts'
import { isArtifactName } from '../../../src/attest/provenance/paths.ts'
import { provenanceBytes, provenanceOf, readProvenance } from '../../../src/attest/provenance/statement.ts'
import { writeDocuments } from '../../../src/attest/provenance/write.ts'
import { signHybrid } from '../../../src/attest/receipt/hybrid-keys.ts'
import { present } from '../../../src/base/assert.ts'
import { fromHex, fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'

const builds = join(import.meta.dir, '../../vectors/builds')
const vectors = ['kex', 'ripgrep']
const vector = async (name: string, file: string) => await Bun.file(join(builds, name, file)).bytes()

const fetchedRust = {
  mirror: 'https://rust.example',
  version: '1.96.0',
  manifest: { uri: 'https://rust.example/dist/channel-rust-1.96.0.toml', sha256: 'cd'.repeat(32) },
  components: [{ name: 'rustc', uri: 'https://rust.example/dist/rustc.tar.xz', sha256: 'ef'.repeat(32) }],
}

const signer = {
  publicKeys: sampleKeys().publicKeys,
  sign: (message: Uint8Array) =>
    signHybrid(sampleKeys().secretKeys, message, { context: new Uint8Array(0), random: countingRandom(7) }),
}

async function documentsOf(record: typeof cargoRecord) {
  const { files, ...rest } = await writeDocuments(record, signer)
  const found = new Map(files.map(({ path, bytes }) => [path, bytes]))
  return { ...rest, paths: [...found.keys()], file: (path: string) => present(found.get(path), path) }
}

const json = (bytes: Uint8Array) => JSON.parse(fromUtf8(bytes))

// Goal: each package has its origin and its dependencies in both documents, and code of the source has no checksum of a
// registry.
test('origins of packages', async () => {
  const { file } = await documentsOf(cargoRecord)
  const { resolvedDependencies } = json(file('attestations/slsa.json')).predicate.buildDefinition
  const serde = `pkg:cargo/serde@1.0.228?checksum=sha256:${fileSha256(utf8('serde'))}`
  const crates = resolvedDependencies.filter(({ uri }: { uri?: string }) => uri?.startsWith('pkg:cargo/'))
  expect(crates.map(({ name, annotations }: Record<string, unknown>) => [name, annotations])).toEqual([
    ['serde', { origin: 'fetched', compiled: true, dependsOn: [] }],
    ['libz-sys', { origin: 'fetched', compiled: true, dependsOn: [] }],
    ['sev', { origin: 'fetched', compiled: true, dependsOn: [] }],
    ['answer', { origin: 'vendored', compiled: true, dependsOn: [] }],
    ['demo', { origin: 'path', compiled: true, dependsOn: [serde] }],
  ])
  const { components, dependencies } = json(file('attestations/sbom.cdx.json'))
  const demo = 'pkg:cargo/demo@0.1.0?download_url=file:.'
  expect(dependencies[0]).toEqual({ ref: 'project', dependsOn: [demo] })
  expect(dependencies.at(-1)).toEqual({ ref: demo, dependsOn: [serde] })
  expect(components.map(({ hashes }: Record<string, unknown>) => hashes !== undefined)).toEqual([
    true,
    true,
    false,
    false,
    false,
  ])
  expect(components[3].properties).toEqual([
    { name: 'strongroom:origin', value: 'vendored' },
    { name: 'strongroom:compiled', value: 'true' },
    { name: 'strongroom:source-tree', value: `gitoid:tree:sha256:${fileSha256(utf8('answer'))}` },
  ])
})

// Goal: what the family's subset cannot say of the VM stands in the statement, with who says it.
test.each([
  ['the summary', cargoRecord.imageSummary],
  ['none', null],
])("slsa.json names the VM's image first, then the host's summary of it: %s", async (_, imageSummary) => {
  const { file } = await documentsOf({ ...cargoRecord, imageSummary })
  const { builderDependencies } = json(file('attestations/slsa.json')).predicate.runDetails.builder
  expect(builderDependencies[0].digest).toEqual({ sha384: cargoRecord.image.measurement })
  const names = builderDependencies.map(({ name }: { name: string }) => name)
  expect(names.slice(0, 2)).toEqual(['builder', imageSummary === null ? 'cargo' : 'builder-summary'])
  if (imageSummary === null) return
  expect(builderDependencies[1]).toEqual({
    name: 'builder-summary',
    digest: { sha256: imageSummary },
    mediaType: 'application/vnd.dsse.envelope.v1+json',
    annotations: { saidBy: 'host' },
  })
})

// Goal: one provenance has one spelling, which every reader of the family parses, and nothing can be added to it.
describe('provenance.json', () => {
  test.each([...vectors, 'openclaw'])('what another builder of the family wrote is read whole: %s', async name => {
    // Goal: real results of kettle are read, and are equal to what we would write of what we read.
    const bytes = await vector(name, 'provenance.json')
    expect(toHex(prettyJson(readProvenance(bytes)))).toBe(toHex(bytes))
  })

  test.each([
    ['cargo', cargoRecord],
    ['nix', nixRecord],
    ['pnpm', pnpmRecord],
  ] as const)('what we write of a %s build is read, and every other spelling is refused', async (_, record) => {
    // Goal: one provenance has one spelling, so that who hashes what he read and who hashes what he would write agree.
    const { provenance, provenanceDigest } = await documentsOf(record)
    const read = readProvenance(provenance)
    expect(toHex(provenanceDigest)).toBe(fileSha256(provenance))
    const text = fromUtf8(provenance)
    const refused = [
      `${text}\n`,
      ` ${text}`,
      JSON.stringify(read),
      JSON.stringify(read, null, 4),
      JSON.stringify(Object.fromEntries(Object.entries(read).toReversed()), null, 2),
      text.replace('"_type"', '"\\u005ftype"'),
      text.replaceAll('\n', '\r\n'),
    ]
    for (const other of refused) expect(() => readProvenance(utf8(other))).toThrow(Malformed)
  })

  test('an unknown field is refused wherever it stands', async () => {
    // Goal: nothing can be added that a reader might act on and that ours would not see.
    const { provenance } = await documentsOf(nixRecord)
    const places: string[] = []
    const visit = (value: unknown, path: string) => {
      if (typeof value !== 'object' || value === null) return
      if (!Array.isArray(value)) {
        places.push(path)
        Reflect.set(value, 'extra', 1)
        const changed = prettyJson(root)
        Reflect.deleteProperty(value, 'extra')
        expect(() => readProvenance(changed), path).toThrow(/extra|algorithm/)
      }
      for (const [name, inner] of Object.entries(value)) visit(inner, `${path}.${name}`)
    }
    const root = json(provenance)
    visit(root, '')
    expect(places.length).toBeGreaterThan(30)
    expect(() => readProvenance(provenance)).not.toThrow()
  })

  test('a name twice, a wrong type and a missing field are refused', async () => {
    const text = fromUtf8((await documentsOf(cargoRecord)).provenance)
    const changes: [string, string][] = [
      ['"_type": "https', '"_type": "x",\n  "_type": "https'],
      ['"buildCommand": "cargo build --release --locked"', '"buildCommand": 1'],
      ['"predicateType"', '"predicatetype"'],
      ['"sha256": ', '"md5": '],
    ]
    for (const [from, to] of changes) {
      expect(text).toContain(from)
      expect(() => readProvenance(utf8(text.replace(from, to)))).toThrow(Malformed)
    }
  })

  test('the members that other readers need are there', async () => {
    // Goal: their toolchain has three sets of names, their source has both ids; missing is no text to them.
    const cargo = readProvenance((await documentsOf(cargoRecord)).provenance).predicate
    expect(Object.keys(cargo.buildDefinition.internalParameters.toolchain)).toEqual(['cargo', 'rustc', 'kettle'])
    expect(cargo.runDetails.metadata.invocationId).toBe(cargoRecord.jobId)
    expect(cargo.buildDefinition.resolvedDependencies.map(dependency => dependency.uri)).toEqual([
      `gitoid:tree:sha256:${'c'.repeat(64)}`,
      `pkg:cargo/serde@1.0.228?checksum=sha256:${fileSha256(utf8('serde'))}`,
      `pkg:cargo/libz-sys@1.1.3%2Bzlib-1.3?checksum=sha256:${fileSha256(utf8('z'))}&repository_url=sparse%2Bhttps:%2F%2Freg.example%2F`,
      `pkg:cargo/sev@7.1.0?vcs_url=git%2Bhttps:%2F%2Fgit.example%2Fsev%40${'d'.repeat(40)}`,
      'pkg:cargo/answer@0.1.0?download_url=file:vendor%2Fan%20answer',
    ])
    const nix = readProvenance((await documentsOf(nixRecord)).provenance).predicate
    expect(nix.buildDefinition.externalParameters.source).toEqual({
      digest: { gitCommit: '', gitTree: 'b'.repeat(40) },
      uri: '',
    })
    expect(nix.buildDefinition.internalParameters.flakeInputs?.[0]?.narHash).toStartWith('sha256-')
  })

  test('a build with pnpm has the members of the family', async () => {
    // Goal: what we write of a build with pnpm has exactly the members that kettle wrote of one.
    const shapeOf = (value: unknown): unknown =>
      typeof value !== 'object' || value === null
        ? typeof value
        : Array.isArray(value)
          ? value.slice(0, 1).map(shapeOf)
          : Object.entries(value).map(([name, inner]) => [name, shapeOf(inner)])
    const { buildDefinition: ours } = readProvenance((await documentsOf(pnpmRecord)).provenance).predicate
    const { buildDefinition: theirs } = readProvenance(await vector('openclaw', 'provenance.json')).predicate
    expect(shapeOf(ours)).toEqual(shapeOf(theirs))
    const hex = 'ab'.repeat(64)
    expect(ours.resolvedDependencies.slice(1)).toEqual([
      { digest: { sha512: hex }, name: '@types/node', uri: `pkg:npm/%40types/node@20.11.5?checksum=sha512:${hex}` },
      { digest: { sha512: hex }, name: 'inner', uri: 'pkg:npm/inner@1.0.0?bundled_in=%40types%2Fnode%4020.11.5' },
    ])
  })

  test('a record that cannot be written is refused', () => {
    // Goal: what we write we can read.
    const bad = { ...nixRecord, packages: [{ ...present(nixRecord.packages[0], 'input'), narSha256: 'zz' }] }
    expect(() => provenanceBytes(provenanceOf(bad as never, []))).toThrow(Malformed)
    const half = { ...cargoRecord, project: 'p', command: undefined } as never
    expect(() => provenanceBytes(provenanceOf(half, []))).toThrow()
  })
})

// Goal: every file of a result is bound, and no name leaves it.
describe('files of a result', () => {
  test('each is bound by its digest', async () => {
    const { provenance, file, paths } = await documentsOf(cargoRecord)
    expect(paths).toEqual([
      'provenance.json',
      'attestations/slsa.json',
      'attestations/slsa.dsse.json',
      'attestations/bundle.sigstore.json',
      'attestations/sbom.cdx.json',
      'build.log',
    ])
    const { byproducts } = readProvenance(provenance).predicate.runDetails
    expect(byproducts).toEqual(paths.slice(1).map(name => ({ digest: { sha256: fileSha256(file(name)) }, name })))
  })

  test('artifact names', () => {
    // Goal: no name leaves the directory, or is two things on two systems.
    for (const name of ['rg', 'lib/libdemo.so', 'a b', 'x.tar.gz', '.hidden', 'a'.repeat(255)])
      expect(isArtifactName(name)).toBe(true)
    const bad = [
      '',
      '.',
      '..',
      '../x',
      'a/../b',
      '/etc/passwd',
      'a//b',
      'a/',
      'a\\b',
      'C:x',
      'a\nb',
      'é',
      'a'.repeat(256),
    ]
    for (const name of [...bad, ' a', 'a ', 'a\0', 'a*', Array(17).fill('a').join('/')])
      expect(isArtifactName(name), name).toBe(false)
  })
})

// Goal: whoever has the VM's public keys verifies the envelope by the specification alone.
describe('DSSE', () => {
  test('the pre-authentication encoding is that of the specification', () => {
    // dsse, protocol.md, "Test Vectors".
    expect(fromUtf8(preAuthEncoding('http://example.com/HelloWorld', utf8('hello world')))).toBe(
      'DSSEv1 29 http://example.com/HelloWorld 11 hello world',
    )
  })

  test('both signatures verify over it, each under its own key id', async () => {
    const { file } = await documentsOf(cargoRecord)
    const envelope = readDsse(file('attestations/slsa.dsse.json'))
    expect(toHex(envelope.payload)).toBe(toHex(file('attestations/slsa.json')))
    const message = preAuthEncoding(envelope.payloadType, envelope.payload)
    const [first, second] = envelope.signatures
    const { ed25519, mldsa65 } = sampleKeys().publicKeys
    expect(first?.keyid).toBe(envelopeKeyId('ed25519', ed25519))
    expect(second?.keyid).toBe(envelopeKeyId('mldsa65', mldsa65))
    expect(nacl.sign.detached.verify(message, present(first, 'ed25519').sig, ed25519)).toBe(true)
    expect(ml_dsa65.verify(present(second, 'ml-dsa').sig, message, mldsa65)).toBe(true)
  })

  test('key ids are over the DER that others make of the same keys', () => {
    // Goal: whoever has the key as a file finds it by its id: the runtime's own encoder agrees with our prefixes.
    const { ed25519, mldsa65 } = sampleKeys().publicKeys
    for (const [key, raw] of [
      ['ed25519', ed25519],
      ['mldsa65', mldsa65],
    ] as const) {
      const spki = spkiOf(key, raw)
      const theirs = createPublicKey({ key: Buffer.from(spki), format: 'der', type: 'spki' })
      expect(theirs.export({ format: 'der', type: 'spki' }).toString('hex')).toBe(toHex(spki))
      expect(theirs.asymmetricKeyType as string).toBe(key === 'ed25519' ? 'ed25519' : 'ml-dsa-65')
    }
    expect(() => spkiOf('ed25519', mldsa65)).toThrow(Malformed)
  })
})

// Goal: tools that nobody here wrote take our bundle and our SBOM.
describe('formats of others', () => {
  test('the Sigstore bundle is one to @sigstore/bundle', async () => {
    const { file } = await documentsOf(cargoRecord)
    const bytes = file('attestations/bundle.sigstore.json')
    const bundle = bundleFromJSON(json(bytes))
    if (!isBundleWithDsseEnvelope(bundle)) throw new Error('no envelope in it')
    expect(bundle.content.dsseEnvelope.signatures).toHaveLength(1)
    expect(bundle.content.dsseEnvelope.payload.toString('hex')).toBe(toHex(file('attestations/slsa.json')))
    const ours = readBundle(bytes)
    expect(ours.hint).toBe(envelopeKeyId('ed25519', sampleKeys().publicKeys.ed25519))
    const [signature] = ours.envelope.signatures
    const message = preAuthEncoding(ours.envelope.payloadType, ours.envelope.payload)
    const { ed25519 } = sampleKeys().publicKeys
    expect(nacl.sign.detached.verify(message, present(signature, 'a signature').sig, ed25519)).toBe(true)
  })

  test.each([
    ['cargo', cargoRecord],
    ['nix', nixRecord],
    ['cargo with a fetched toolchain', { ...cargoRecord, rust: fetchedRust }],
  ] as const)('the SBOM of a %s build is valid CycloneDX 1.6', async (_, record) => {
    const { file } = await documentsOf(record)
    const bytes = file('attestations/sbom.cdx.json')
    const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6)
    expect(await validator.validate(fromUtf8(bytes))).toBeNull()
    expect(json(bytes).components).toHaveLength(record.packages.length)
    // The validator sees mistakes.
    const broken = fromUtf8(bytes).replace('"library"', '"book"')
    expect(await validator.validate(broken)).not.toBeNull()
  })
})

// Goal: what other builders write is read, and what a report covers cannot be read in two ways.
describe('evidence.json', () => {
  test.each(vectors)('of another builder is read: %s', async name => {
    const read = readEvidence(await vector(name, 'evidence.json'))
    expect(read.platform).toBe('az-snp')
    expect(read.receipts).toBeNull()
    if (read.evidence?.kind !== 'az-snp') throw new Error('not the form of Azure')
    expect([read.evidence.pcrs.length, read.evidence.hclReport.length]).toEqual([24, 2600])
  })

  test('what a report covers', () => {
    const digest = new Uint8Array(32).fill(1)
    const nonce = present(fromHex('000102030405060708090a0b0c0d0e0f'), 'hex')
    expect(toHex(present(familyReportData(digest, nonce), '16 bytes'))).toBe(
      `${'01'.repeat(32)}000102030405060708090a0b0c0d0e0f${'00'.repeat(16)}`,
    )
    // A shorter one, padded, would be another nonce.
    expect(familyReportData(digest, nonce.subarray(0, 15))).toBeNull()
    expect(() => familyReportData(new Uint8Array(31), nonce)).toThrow(Malformed)
  })
})
