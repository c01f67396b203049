// Goal: the manifest and the commands that a client copies are exactly these.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { resultCommands, verifyCommands } from '../../../src/builds/oci/commands.plan.ts'
import { bootManifest, emptyBlob, emptyDigest, MEDIA_TYPES } from '../../../src/builds/oci/manifest.plan.ts'

const digest = `sha256:${'ab'.repeat(32)}`
const image = { name: 'builder', digest, hasIgvm: true }
const asked = {
  sourceKind: 'archive',
  projectDir: null,
  toolchain: null,
  options: null,
  waivers: [],
  fetchCaSha256: null,
  cratesMirror: null,
} as const

test('goal: a boot image is an artifact of the OCI image specification, byte for byte', () => {
  expect(new TextDecoder().decode(bootManifest([{ name: 'kernel', digest, sizeBytes: 7 }]))).toBe(
    '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",' +
      '"artifactType":"application/vnd.strongroom.boot-image.v1",' +
      '"config":{"mediaType":"application/vnd.oci.empty.v1+json",' +
      '"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"data":"e30="},' +
      `"layers":[{"mediaType":"application/octet-stream","digest":"${digest}","size":7,` +
      '"annotations":{"org.opencontainers.image.title":"kernel"}}]}',
  )
  expect(emptyDigest).toBe(`sha256:${createHash('sha256').update(emptyBlob).digest('hex')}`)
  expect([MEDIA_TYPES.index, MEDIA_TYPES.envelope]).toEqual([
    'application/vnd.oci.image.index.v1+json',
    'application/vnd.dsse.envelope.v1+json',
  ])
})

test('goal: a result is fetched with the key of the environment and verified against the source and the nonce', () => {
  expect(
    resultCommands({ id: 'j1', nonce: '00ff', ...asked }, { baseUrl: 'https://builds.example', image: null }),
  ).toEqual([
    'curl --fail --header "Authorization: Bearer $STRONGROOM_API_KEY" --output j1.tar.gz https://builds.example/build/j1/result',
    'strongroom verify build j1.tar.gz --nonce 00ff --source SOURCE',
  ])
})

test('goal: options of Cargo are options of the verification, one for each feature', () => {
  const cargo = {
    ...{ package: 'cli', bin: 'a b', features: ['a', 'dep/b'], noDefaultFeatures: true },
    ...{ profile: 'dist', target: 'wasm32-wasip1' },
  }
  const asked = {
    sourceKind: 'archive' as const,
    ...{ projectDir: null, toolchain: null, options: { cargo }, waivers: [], fetchCaSha256: null, cratesMirror: null },
  }
  expect(verifyCommands({ baseUrl: 'https://b.example', image: null, project: 'p', nonce: '0a', asked })).toEqual([
    "strongroom verify build p --nonce 0a --source SOURCE --package cli --bin 'a b' --features a --features dep/b --no-default-features --profile dist --target wasm32-wasip1",
  ])
})

test('goal: each field of the request is an option of the verification, quoted where it must be', () => {
  const caches = [{ url: 'https://cache.example/a', publicKey: 'c-1:AA=' }]
  const all = {
    sourceKind: 'git',
    projectDir: "it's",
    toolchain: 'cargo',
    options: { nix: { output: "tools.a'b", caches } },
    waivers: ['allow_lfs_pointers', 'any_toolchain'],
    fetchCaSha256: 'cd',
    cratesMirror: 'm x',
  } as const
  const of = (baseUrl: string, hasIgvm: boolean) =>
    verifyCommands({ baseUrl, image: { ...image, hasIgvm }, project: 'p', nonce: '0a', asked: all })
  const options = `--commit COMMIT --project-dir 'it'\\''s' --toolchain cargo --flake-output 'tools.a'\\''b' --nix-cache https://cache.example/a=c-1:AA= --allow-lfs-pointers --any-toolchain --fetch-ca AUTHORITIES --crates-mirror 'm x'`
  expect(of('https://builds.example:8443', true)).toEqual([
    `skopeo copy docker://builds.example:8443/builder@${digest} dir:./builder-image`,
    `strongroom verify build p --nonce 0a ${options} --policy POLICY --igvm ./builder-image --image ./builder-image`,
  ])
  expect(of('http://127.0.0.1:80', false)).toEqual([
    `skopeo copy --src-tls-verify=false docker://127.0.0.1/builder@${digest} dir:./builder-image`,
    `strongroom verify build p --nonce 0a ${options} --policy POLICY --image ./builder-image`,
  ])
})
