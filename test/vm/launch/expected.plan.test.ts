// Goal: a launch that differs from the expected one in any part is found, and the part is named. Real ID blocks.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { publicIdKey, signIdBlock } from '../../../src/attest/launch/id-block-sign.ts'
import { writeIdKey } from '../../../src/attest/launch/id-key.ts'
import { toHex } from '../../../src/base/bytes.ts'
import type { ImageManifest } from '../../../src/contract/vm/image.ts'
import { type LaunchDocument, launchText } from '../../../src/contract/vm/launch.ts'
import {
  differingParts,
  expectedMeasurement,
  type GivenIgvm,
  type GivenLaunch,
  hostDataOf,
  launchDocument,
} from '../../../src/vm/launch/expected.plan.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const sha256 = (text: string) => createHash('sha256').update(text).digest()
const hash = (name: string) => sha256(name).toString('hex')
const digest = new Uint8Array(48).fill(9)
const measurement = '09'.repeat(48)
const other = '08'.repeat(48)
const policy = 0x30000n

const file = (name: string) => ({ sha256: hash(name), sizeBytes: 1 })
const manifest = {
  schemaVersion: 1,
  name: 'agent',
  inputsSha256: hash('inputs'),
  rootHash: hash('root hash'),
  files: {
    firmware: file('firmware'),
    root: file('root'),
    kernel: file('kernel'),
    initrd: file('initrd'),
    cmdline: file('cmdline'),
  },
  kernelVersion: '6.12',
  launchDigests: { 'qemu-kvm/bios/EPYC-v4/2': measurement, 'qemu-kvm/igvm/EPYC-v4/4': other },
} as unknown as ImageManifest
const shape = { vehicle: 'bios', vcpuType: 'EPYC-v4', vcpus: 2, memoryMib: 4096, igvmSha256: null } as const

test('goal: the document has each part of the manifest, and the digest of its shape', () => {
  const document = {
    format: 'strongroom/launch/v1',
    image: { name: 'agent', rootHash: hash('root hash'), inputsSha256: hash('inputs') },
    vehicle: 'ovmf',
    firmwareSha256: hash('firmware'),
    kernelSha256: hash('kernel'),
    initrdSha256: hash('initrd'),
    cmdlineSha256: hash('cmdline'),
    vcpus: 2,
    vcpuType: 'EPYC-v4',
    memoryMib: 4096,
    policy: '0x30000',
    measurement,
  } as const
  expect(launchDocument(manifest, shape)).toEqual(document)
  expect(launchDocument(manifest, { ...shape, vehicle: 'igvm', vcpus: 4, igvmSha256: hash('igvm') })).toEqual({
    ...document,
    vehicle: 'igvm',
    firmwareSha256: hash('igvm'),
    vcpus: 4,
    measurement: other,
  })
})

test('goal: a shape without a digest is refused, with the shapes that there are and how to measure this one', () => {
  const refusal = (change: object, launchDigests: Record<string, string> = manifest.launchDigests) => {
    const { code, message } = faultOf(() =>
      expectedMeasurement({ name: 'agent', launchDigests }, { ...shape, ...change }),
    )
    expect(code).toBe('image.invalid')
    return message
  }
  expect(refusal({ vcpus: 3 })).toBe(
    'the manifest of image agent has no launch digest for bios/EPYC-v4/3; it has bios/EPYC-v4/2, igvm/EPYC-v4/4. Set vm.vcpu_type and vm.vcpus to one of these, or measure this shape (strongroom measure ovmf --firmware firmware.fd --kernel kernel --initrd initrd --cmdline "$(cat cmdline)" --vcpus 3 --vcpu-type EPYC-v4 --features 0x1) and add it to launchDigests as "qemu-kvm/bios/EPYC-v4/3"',
  )
  expect(refusal({ vehicle: 'igvm' })).toContain(
    ' (strongroom measure igvm --image DIR --vcpus 2 --vcpu-type EPYC-v4) and add it to launchDigests as "qemu-kvm/igvm/EPYC-v4/2"',
  )
  expect(refusal({}, {})).toContain('no launch digest for bios/EPYC-v4/2; it has none. Set')
  // No name of every object is a shape.
  expect(refusal({}, Object.create({ 'qemu-kvm/bios/EPYC-v4/2': measurement }))).toContain('it has none')
})

test('goal: HOST_DATA is the digest of the workload, or without one of the document', () => {
  expect(toHex(hostDataOf({ document: 'd', workload: null }))).toBe(hash('d'))
  expect(toHex(hostDataOf({ document: 'd', workload: 'w' }))).toBe(hash('w'))
})

const newKey = () => crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const [operator, stranger] = await Promise.all([newKey(), newKey()])
const operatorKey = createHash('sha384')
  .update(writeIdKey(await publicIdKey(operator.publicKey)))
  .digest()
const none = new Uint8Array(16)
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')

async function idBlockOf(change: { measurement?: Uint8Array; policy?: bigint } = {}, idKey = operator) {
  const block = { measurement: digest, familyId: none, imageId: none, guestSvn: 0, policy, ...change }
  const { idBlock, idAuth } = await signIdBlock(block, { idKey })
  return { block: base64(idBlock), auth: base64(idAuth), hasAuthor: false }
}
const idBlock = await idBlockOf()
const flipped = (text: string, at: number) =>
  base64(Buffer.from(text, 'base64').map((byte, index) => (index === at ? byte ^ 1 : byte)))

type Changes = {
  given?: Partial<GivenLaunch>
  signed?: Partial<GivenLaunch['signed']>
  document?: Partial<LaunchDocument>
  workload?: string
  /** Booted by an IGVM file, which differs in this. */
  igvm?: Partial<GivenIgvm>
}

function partsOf({ given, signed, document: changed, workload, igvm }: Changes): Promise<string[]> {
  const document = {
    ...launchDocument(manifest, shape),
    ...(igvm === undefined ? {} : { vehicle: 'igvm' as const, firmwareSha256: hash('igvm') }),
    ...changed,
  }
  const hostData = base64(sha256(workload ?? launchText(document)))
  return differingParts(
    {
      firmware: hash('firmware'),
      kernel: hash('kernel'),
      initrd: hash('initrd'),
      cmdline: hash('cmdline'),
      digest,
      signed: { policy, hostData, idBlock, ...signed },
      igvm:
        igvm === undefined
          ? null
          : {
              unsigned: hash('igvm'),
              kernel: hash('kernel'),
              initrd: hash('initrd'),
              cmdline: hash('cmdline and NUL'),
              cmdlineGiven: hash('cmdline and NUL'),
              policy,
              ...igvm,
            },
      ...given,
    },
    { document, workload: workload ?? null, operatorKey, firmwareSha256: hash('firmware') },
  )
}

const x = hash('another')
const own = { hostData: base64(sha256('another')) }
const CASES: [string, Changes | (() => Promise<Changes>), string[]][] = [
  ['the expected launch by firmware', {}, []],
  ['the expected launch by an IGVM file', { igvm: {} }, []],
  ['the expected launch with a workload', { workload: '{"w":1}' }, []],
  ['another firmware', { given: { firmware: x } }, ['firmware']],
  ['another firmware in the IGVM file', { igvm: {}, given: { firmware: x } }, ['firmware']],
  // In an IGVM file the document's digest is of the file, not of the firmware in it.
  ['a firmware with the digest of the IGVM file', { igvm: {}, given: { firmware: hash('igvm') } }, ['firmware']],
  ['another kernel', { given: { kernel: x } }, ['kernel']],
  ['another kernel beside the IGVM file', { igvm: {}, given: { kernel: x } }, ['kernel']],
  ['another kernel in the IGVM file', { igvm: { kernel: x } }, ['kernel']],
  ['no kernel in the IGVM file', { igvm: { kernel: null } }, ['kernel']],
  ['another initrd', { given: { initrd: x } }, ['initrd']],
  ['another initrd in the IGVM file', { igvm: { initrd: x } }, ['initrd']],
  ['no initrd in the IGVM file', { igvm: { initrd: null } }, ['initrd']],
  ['another command line', { given: { cmdline: x } }, ['command line']],
  ['another command line beside the IGVM file', { igvm: {}, given: { cmdline: x } }, ['command line']],
  ['another command line in the IGVM file', { igvm: { cmdline: x } }, ['command line']],
  ['no command line in the IGVM file', { igvm: { cmdline: null } }, ['command line']],
  ['another IGVM file', { igvm: { unsigned: x } }, ['IGVM file']],
  ['another policy in the IGVM file', { igvm: { policy: 0xb0000n } }, ['policy']],
  ['no policy in the IGVM file', { igvm: { policy: null } }, ['policy']],
  ['a document of another policy', { document: { policy: '0xb0000' } }, ['policy']],
  [
    'an ID block for another policy',
    async () => ({ signed: { idBlock: await idBlockOf({ policy: 0xb0000n }) } }),
    ['policy'],
  ],
  [
    'another policy, and an ID block for it',
    async () => ({ signed: { policy: 0xb0000n, idBlock: await idBlockOf({ policy: 0xb0000n }) } }),
    ['policy'],
  ],
  ['other host data', { signed: own }, ['host data']],
  ['host data that is no base64', { signed: { hostData: '!' } }, ['host data']],
  ['another workload', { workload: '{"w":1}', signed: own }, ['host data']],
  [
    'an ID block of another key',
    async () => ({ signed: { idBlock: await idBlockOf({}, stranger) } }),
    ['operator key'],
  ],
  ['a changed ID block', { signed: { idBlock: { ...idBlock, block: flipped(idBlock.block, 0x30) } } }, ['ID block']],
  [
    'a changed signature',
    // R of the signature of the ID key begins at 0x40.
    { signed: { idBlock: { ...idBlock, auth: flipped(idBlock.auth, 0x40) } } },
    ['ID block'],
  ],
  ['an ID block that is none', { signed: { idBlock: { ...idBlock, block: '' } } }, ['ID block']],
  ['an ID authentication that is no base64', { signed: { idBlock: { ...idBlock, auth: '!' } } }, ['ID block']],
  [
    'a signature of an author that is none',
    async () => {
      const block = { measurement: digest, familyId: none, imageId: none, guestSvn: 0, policy }
      const signed = await signIdBlock(block, { idKey: operator, authorKey: stranger })
      const auth = flipped(base64(signed.idAuth), 0x680)
      return { signed: { idBlock: { block: base64(signed.idBlock), auth, hasAuthor: true } } }
    },
    ['ID block'],
  ],
  ['another launch digest', { given: { digest: new Uint8Array(48).fill(8) } }, ['measurement']],
  ['a document of another launch digest', { document: { measurement: other } }, ['measurement']],
  [
    'an ID block for another launch digest',
    async () => ({ signed: { idBlock: await idBlockOf({ measurement: new Uint8Array(48).fill(8) }) } }),
    ['measurement'],
  ],
  // The digest follows from the parts: it is not named beside them.
  ['another kernel and its digest', { given: { kernel: x, digest: new Uint8Array(48).fill(8) } }, ['kernel']],
  [
    'everything at once',
    {
      given: { firmware: x, kernel: x, initrd: x, cmdline: x },
      igvm: { unsigned: x, policy: 0n },
      signed: { ...own, idBlock: { ...idBlock, block: '' } },
    },
    ['firmware', 'kernel', 'initrd', 'command line', 'IGVM file', 'policy', 'host data', 'ID block'],
  ],
]

for (const [what, changes, parts] of CASES) {
  test(`goal: ${what}: ${parts.join(', ') || 'no difference'}`, async () => {
    expect(await partsOf(typeof changes === 'function' ? await changes() : changes)).toEqual(parts as never)
  })
}
