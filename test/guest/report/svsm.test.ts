// The SVSM's word for its TPM, from a fake configfs-tsm: no machine of ours has an SVSM.

import { describe, expect, test } from 'bun:test'
import { createTsmKernel } from '../../../scripts/rigs/guest/tsm-kernel.ts'
import { sha512 } from '../../../src/attest/hash.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { concat } from '../../../src/base/bytes.ts'
import { kernelFiles } from '../../../src/guest/report/configfs.ts'
import { findSvsm } from '../../../src/guest/report/svsm.ts'

const reports = '/sys/kernel/config/tsm/report'
const manifest = new Uint8Array(120).fill(0x42)
const nonce = Uint8Array.from({ length: 64 }, (_, at) => at)

describe('an SVSM', () => {
  // Goal: the vTPM service is asked for by its GUID, over exactly these 64 bytes, and its report covers nonce and
  // manifest; no entry stays.
  test('vouches for its TPM', async () => {
    const kernel = createTsmKernel({ manifest })
    const service = await findSvsm(reports, kernel)
    const said = await service?.(nonce)
    expect(said?.manifest).toEqual(manifest)
    expect(decodeReport(said?.report ?? nonce).reportData).toEqual(sha512(concat(nonce, manifest)))
    expect(kernel.asked.at(-1)?.inblob).toEqual(nonce)
    expect(kernel.entries.size).toBe(0)
    expect(() => service?.(nonce.subarray(1))).toThrow('a nonce of 63 bytes')
  })

  // Goal: a kernel without the attributes, one without hardware, another provider and no configfs at all have none.
  test('is not everywhere', async () => {
    expect(await findSvsm(reports, createTsmKernel())).toBeNull()
    expect(await findSvsm(reports, createTsmKernel({ provider: null }))).toBeNull()
    expect(await findSvsm('/nonexistent/tsm/report', kernelFiles)).toBeNull()
  })

  // Goal: somebody else's write to the entry is noticed, and a manifest without end is refused.
  test('is not believed blindly', async () => {
    expect(findSvsm(reports, createTsmKernel({ manifest, meddler: true }))).rejects.toThrow('generation')
    expect(findSvsm(reports, createTsmKernel({ manifest: new Uint8Array(4097) }))).rejects.toThrow('4097 bytes')
    expect(findSvsm(reports, createTsmKernel({ manifest: new Uint8Array(0) }))).rejects.toThrow('0 bytes')
  })
})
