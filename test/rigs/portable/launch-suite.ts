// Launch digests, IGVM files, ID blocks and hash trees, over vectors and over made-up firmware. Pure.

import { sha256, sha384 } from '../../../src/attest/hash.ts'
import { writeIgvm } from '../../../src/attest/igvm/file.ts'
import {
  buildIgvm,
  idKeyDigest,
  launchDigest,
  measureIgvm,
  precomputedLaunchDigest,
  readIdAuth,
  readIgvm,
  verifyIdBlock,
  verityRootOf,
} from '../../../src/attest/index.ts'
import { OVMF_SECTIONS, type OvmfSectionKind } from '../../../src/attest/launch/ovmf.ts'
import { present } from '../../../src/base/assert.ts'
import { concat, fromHex, utf8 } from '../../../src/base/bytes.ts'
import { fromBase64Text, type Vectors } from './input.ts'
import { orRefused, told } from './outcome.ts'

type Reference = {
  readonly vcpus: number
  readonly vcpu_sig: string
  readonly ovmf: string
  readonly kernel: string | null
  readonly cmdline: string | null
  readonly guest_features: number
}

type BareMetal = {
  readonly measurement_doc: {
    readonly cmdline: string
    readonly ovmf_hash: string
    readonly kernel_hash: string
    readonly initrd_hash: string
    readonly hashes_table_gpa: number
    readonly reset_eip: number
    readonly ovmf_sections: readonly { readonly gpa: number; readonly size: number; readonly type: number }[]
  }
  readonly vcpus: number
  readonly vcpu_type: string
  readonly guest_features: number
  readonly mr_config: string
}

export async function launchSuite(vectors: Vectors): Promise<unknown> {
  return {
    reference: await Promise.all(
      vectors
        .json<Reference[]>('launch-digest/expected-digests.json')
        .map(reference => referenceDigest(vectors, reference)),
    ),
    bareMetal: await bareMetal(vectors.json<BareMetal>('launch-digest/bare-metal-milan.inputs.json')),
    large: await largeFirmware(vectors),
    igvm: await igvm(vectors),
    built: await builtIgvm(vectors),
    idBlock: await idBlock(vectors),
    verity: await verity(),
  }
}

async function referenceDigest(vectors: Vectors, reference: Reference): Promise<unknown> {
  const kernel = reference.kernel === null ? {} : { kernel: new Uint8Array(0), cmdline: reference.cmdline ?? '' }
  const { digest, parts } = await launchDigest({
    firmware: vectors.bytes(`ovmf/${reference.ovmf}`),
    ...kernel,
    vcpus: reference.vcpus,
    vcpuType: Number(reference.vcpu_sig),
    features: BigInt(reference.guest_features),
    profile: 'qemu-kvm',
  })
  return { digest, parts }
}

async function bareMetal({ measurement_doc: document, ...inputs }: BareMetal): Promise<unknown> {
  const kinds = Object.keys(OVMF_SECTIONS) as OvmfSectionKind[]
  const launch = {
    vcpus: inputs.vcpus,
    features: BigInt(inputs.guest_features),
    profile: 'qemu-kvm',
    firmwareDigest: hex(document.ovmf_hash),
    metadata: {
      sections: document.ovmf_sections.map(({ gpa, size, type }) => ({
        kind: present(
          kinds.find(kind => OVMF_SECTIONS[kind] === type),
          `a known section: ${type}`,
        ),
        gpa,
        sizeBytes: size,
      })),
      kernelHashes: { gpa: document.hashes_table_gpa, sizeBytes: 0x400 },
      resetEip: document.reset_eip,
    },
    kernelHashes: {
      kernel: hex(document.kernel_hash),
      initrd: hex(document.initrd_hash),
      cmdline: sha256(concat(utf8(document.cmdline), new Uint8Array(1))),
    },
  } as const
  return {
    digest: (await precomputedLaunchDigest({ ...launch, vcpuType: inputs.vcpu_type })).digest,
    milan: (await precomputedLaunchDigest({ ...launch, vcpuType: 'EPYC-Milan' })).digest,
    hostData: sha256(concat(utf8('dstack-mr-config-v3:'), new Uint8Array(1), utf8(inputs.mr_config))),
  }
}

/** Firmware of 4 MiB: more pages than are hashed at once. The host's own SHA-384 gives the same. */
async function largeFirmware(vectors: Vectors): Promise<unknown> {
  const firmware = new Uint8Array(4 * 1024 * 1024)
  let state = 1
  for (let at = 0; at < firmware.length; at += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    firmware[at] = state >>> 16
  }
  firmware.set(vectors.bytes('ovmf/ovmf_AmdSev_suffix.bin'), firmware.length - 4096)
  const launch = {
    firmware,
    kernel: utf8('kernel'),
    vcpus: 2,
    vcpuType: 'EPYC-Milan',
    features: 1n,
    profile: 'qemu-kvm',
  } as const
  const { digest } = await launchDigest(launch)
  return {
    digest,
    own: (await launchDigest({ ...launch, sha384 })).digest,
    igvm: (await launchDigest({ ...launch, vehicle: 'igvm' })).digest,
  }
}

async function igvm(vectors: Vectors): Promise<unknown> {
  const bytes = vectors.bytes('igvm/bz-x64-vtl0-encrypted.igvm')
  const file = readIgvm(bytes)
  const broken = Uint8Array.from(bytes)
  broken[20] = (broken[20] ?? 0) ^ 1
  return {
    kinds: file.headers.map(header => header.kind),
    rewritten: sha256(writeIgvm(file)),
    directiveOrder: await orRefused(() => measureIgvm(bytes, { profile: 'directive-order' })),
    qemuKvm: await orRefused(() => measureIgvm(bytes, { profile: 'qemu-kvm' })),
    broken: await orRefused(() => readIgvm(broken)),
  }
}

/** A file of our own measures what its vehicle says. */
async function builtIgvm(vectors: Vectors): Promise<unknown> {
  const firmware = vectors.bytes('ovmf/ovmf_AmdSev_suffix.bin')
  const cpus = { vcpus: 2, vcpuType: 'EPYC-Genoa', features: 1n } as const
  const bytes = await buildIgvm({ ...cpus, firmware, kernelHashes: null, policy: 0x30000n })
  return {
    bytes: sha256(bytes),
    measured: (await measureIgvm(bytes, { profile: 'qemu-kvm' })).digest,
    predicted: (await launchDigest({ ...cpus, firmware, profile: 'qemu-kvm', vehicle: 'igvm' })).digest,
  }
}

const vectorIdBlock =
  'oU1jg0HlZ0Yo/h4C++3r5eWrT68d1y2JZgaOYVu5nv0T0hSzXCMXFbOOJj3GBZdFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAwAAAAAA'

async function idBlock(vectors: Vectors): Promise<unknown> {
  const idAuth = vectors.bytes('id-block/test_auth_block.bin')
  const block = fromBase64Text(vectorIdBlock)
  const changed = Uint8Array.from(block)
  changed[0] = (changed[0] ?? 0) ^ 1
  const verify = async (bytes: Uint8Array) => {
    const verdict = await verifyIdBlock({ idBlock: bytes, idAuth, author: 'required' })
    return { ...told(verdict), idKeyDigest: verdict.idKeyDigest, authorKeyDigest: verdict.authorKeyDigest }
  }
  return {
    good: await verify(block),
    changed: await verify(changed),
    short: await verify(block.subarray(1)),
    idKey: await idKeyDigest(readIdAuth(idAuth).idKey),
  }
}

/** Three levels of hash blocks, the last data block of its own. */
async function verity(): Promise<unknown> {
  const parameters = { dataBlockBytes: 512, hashBlockBytes: 512, dataBlocks: 300, salt: utf8('salt') }
  const data = Uint8Array.from({ length: 300 * 512 }, (_, at) => (at * 7 + (at >>> 9)) & 0xff)
  const source = { read: async (offset: number, length: number) => data.slice(offset, offset + length) }
  const short = { read: async (offset: number, length: number) => data.slice(offset, offset + length - 1) }
  return {
    root: await verityRootOf(source, parameters),
    unsalted: await verityRootOf(source, { ...parameters, salt: new Uint8Array(0) }),
    short: await orRefused(() => verityRootOf(short, parameters)),
  }
}

function hex(text: string): Uint8Array {
  return present(fromHex(text), 'hexadecimal')
}
