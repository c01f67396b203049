// Precomputed inputs of a launch digest: digest after the firmware, its tables, hashes of kernel, initrd and cmdline.
// The JSON form is that of dstack's measurement documents. Pure; throws Malformed.

import { type Static, type TSchema, Type } from '@sinclair/typebox'
import type { PrecomputedLaunch } from '../../attest/launch/digest.ts'
import { cmdlineBytes, kernelHashSizeBytes } from '../../attest/launch/kernel-hashes.ts'
import { pageBytes, sectionKind } from '../../attest/launch/ovmf.ts'
import { Malformed, wellFormed } from '../../attest/malformed.ts'
import { present } from '../../base/assert.ts'
import { fromHex } from '../../base/bytes.ts'
import { checkValue } from '../../contract/check.ts'
import { OrNull } from '../../contract/forms.ts'
import type { CpuOptions } from './launch-options.ts'
import { nativeSha256 } from './native.ts'

const hex = (sizeBytes: number) => Type.String({ pattern: `^[0-9a-f]{${sizeBytes * 2}}$` })
const u32 = Type.Integer({ minimum: 0, maximum: 0xffff_ffff })
const optional = <T extends TSchema>(schema: T) => Type.Optional(OrNull(schema))

export const LaunchInputs = Type.Object({
  measurement_doc: Type.Object({
    /** SHA-384 chain after the firmware's own pages. */
    ovmf_hash: hex(48),
    cmdline: optional(Type.String({ maxLength: 65_536 })),
    kernel_hash: optional(hex(kernelHashSizeBytes)),
    initrd_hash: optional(hex(kernelHashSizeBytes)),
    hashes_table_gpa: optional(u32),
    reset_eip: u32,
    ovmf_sections: Type.Array(
      Type.Object({
        gpa: Type.Integer({ minimum: 0, maximum: 0xffff_f000, multipleOf: pageBytes }),
        size: Type.Integer({ minimum: pageBytes, maximum: 0x400_0000, multipleOf: pageBytes }),
        type: u32,
      }),
      { maxItems: 64 },
    ),
  }),
  vcpus: Type.Optional(Type.Integer({ minimum: 1, maximum: 1024 })),
  vcpu_type: Type.Optional(Type.Union([Type.String(), u32])),
  guest_features: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  expected_launch_digest: Type.Optional(hex(48)),
})
export type LaunchInputs = Static<typeof LaunchInputs>

export function parseLaunchInputs(json: unknown): LaunchInputs {
  const result = checkValue(LaunchInputs, json)
  if (result.ok) return result.value
  throw new Malformed(result.problem)
}

/** Returns the processors of the document. */
export function cpusOf({ vcpus, vcpu_type, guest_features }: LaunchInputs): CpuOptions {
  return {
    ...(vcpus === undefined ? {} : { vcpus }),
    ...(vcpu_type === undefined ? {} : { vcpuType: vcpu_type }),
    ...(guest_features === undefined ? {} : { features: BigInt(guest_features) }),
  }
}

/** Returns everything except the processors. */
export function launchOf({
  measurement_doc: doc,
}: LaunchInputs): Pick<PrecomputedLaunch, 'firmwareDigest' | 'metadata' | 'kernelHashes'> {
  const gpa = doc.hashes_table_gpa ?? 0
  const area = gpa === 0 ? null : { gpa, sizeBytes: pageBytes - (gpa % pageBytes) }
  const sections = doc.ovmf_sections.map(({ gpa: at, size, type }) => ({
    kind: sectionKind(type),
    gpa: at,
    sizeBytes: size,
  }))
  return {
    firmwareDigest: decodeHex(doc.ovmf_hash),
    metadata: { sections, kernelHashes: area, resetEip: doc.reset_eip },
    kernelHashes: hashesOf(doc),
  }
}

function hashesOf({ kernel_hash, initrd_hash, cmdline }: LaunchInputs['measurement_doc']) {
  if (typeof kernel_hash !== 'string') {
    const isBare = (initrd_hash ?? null) === null && (cmdline ?? null) === null
    wellFormed(isBare, '/measurement_doc/kernel_hash: an initrd or a command line without a kernel')
    return null
  }
  return {
    kernel: decodeHex(kernel_hash),
    initrd: typeof initrd_hash === 'string' ? decodeHex(initrd_hash) : nativeSha256(new Uint8Array(0)),
    cmdline: nativeSha256(cmdlineBytes(cmdline ?? '')),
  }
}

function decodeHex(text: string): Uint8Array {
  return present(fromHex(text), 'the schema requires hexadecimal')
}
