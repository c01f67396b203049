// Formats an IGVM file for people and for programs: its contents, its measurement, and the hashes that it commits to.
// Pure.

import type { IgvmDescription, IgvmDigestOrReason } from '../../attest/igvm/describe.ts'
import { policyNames } from '../../attest/report/bits.ts'
import type { Check } from '../../attest/verdict.ts'
import { present } from '../../base/assert.ts'
import { toHex } from '../../base/bytes.ts'
import { bytesText, dash, fields, hexNumber, type Paint } from '../../terminal/render.ts'
import { nativeSha256 } from './native.ts'

type IgvmFile = {
  /** Path of the file; null if it was not written. */
  readonly file: string | null
  readonly bytes: Uint8Array
  readonly digest: Uint8Array
  readonly profile: string
}

/** Formats a file that was built. */
export function shownFile({ file, bytes, digest, profile }: IgvmFile, paint: Paint) {
  const written = file === null ? {} : { file }
  const digests = { sha256: toHex(nativeSha256(bytes)), profile, digest: toHex(digest) }
  return {
    document: { ...written, size_bytes: bytes.length, ...digests },
    text: fields(paint, Object.entries({ ...written, size: bytesText(bytes.length), ...digests })),
  }
}

export function igvmDocument(described: IgvmDescription) {
  const { policy, firmware, kernelHashes } = described
  return {
    platforms: described.platforms.map(({ name, compatibilityMask, highestVtl }) => ({
      name,
      mask: compatibilityMask,
      highest_vtl: highestVtl,
    })),
    headers: described.headers,
    policy: policy === null ? null : { value: hexNumber(policy), set: policyNames(policy).names },
    vmsas: described.vmsaCount,
    shared_pages: described.sharedPageCount,
    firmware: firmware === null ? null : { size_bytes: firmware.sizeBytes, sha256: toHex(firmware.sha256) },
    kernel_hashes:
      kernelHashes === null
        ? null
        : {
            kernel: toHex(kernelHashes.kernel),
            initrd: toHex(kernelHashes.initrd),
            cmdline: toHex(kernelHashes.cmdline),
          },
    layout: { ok: layoutOf(described).outcome === 'pass', reason: layoutOf(described).reason },
    id_block_measurement: described.idBlockMeasurement === null ? null : toHex(described.idBlockMeasurement),
    digests: Object.fromEntries(
      Object.entries(described.digests).map(([profile, item]) => [
        profile,
        item.kind === 'digest' ? { digest: toHex(item.digest) } : { digest: null, reason: item.reason },
      ]),
    ),
  }
}

export function igvmText(described: IgvmDescription, paint: Paint): string {
  const { policy, firmware, kernelHashes, idBlockMeasurement } = described
  const layout = layoutOf(described)
  const hash = (bytes: Uint8Array | undefined) => (bytes === undefined ? 'none committed' : toHex(bytes))
  return fields(paint, [
    ['platforms', described.platforms.map(({ name }) => name).join(', ')],
    [
      'headers',
      Object.entries(described.headers)
        .map(([kind, count]) => `${count} ${kind}`)
        .join(', '),
    ],
    ['policy', policy === null ? '-' : `${hexNumber(policy)} (${policyNames(policy).names.join(', ')})`],
    ['processors', String(described.vmsaCount)],
    ['shared pages', sharedText(described.sharedPageCount)],
    ['firmware', firmware === null ? '-' : `${firmware.sizeBytes} bytes, SHA-256 ${toHex(firmware.sha256)}`],
    ['layout', layout.outcome === 'pass' ? 'this firmware and nothing else' : layout.reason],
    ['kernel', hash(kernelHashes?.kernel)],
    ['initrd', hash(kernelHashes?.initrd)],
    ['cmdline', hash(kernelHashes?.cmdline)],
    ['ID block of', dash(idBlockMeasurement === null ? null : toHex(idBlockMeasurement))],
    ...Object.entries(described.digests).map(([profile, reason]) => [profile, digestText(reason)] as const),
  ])
}

function sharedText(count: number): string {
  return count === 0 ? 'none' : `${count}: the host sees them and may change them; no digest covers them`
}

/** Returns the check that the committed hashes decide what boots. */
function layoutOf({ checks }: IgvmDescription): Check {
  return present(
    checks.find(({ name }) => name === 'igvm-layout'),
    'every description has this check',
  )
}

function digestText(item: IgvmDigestOrReason): string {
  return item.kind === 'digest' ? toHex(item.digest) : `no digest: ${item.reason}`
}
