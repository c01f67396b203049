// The host's certificate table with an extended report: GUID, offset and length of each entry, then their bytes. Pure;
// throws Malformed. AMD 56421 (guest-hypervisor communication block), section 4.1.8.1. The table is not signed: its
// certificates are judged elsewhere.

import { guidText } from '../encoding/guid.ts'
import { isZero, type Layout, layoutBytes, readFields } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'

const ENTRY = { guid: [0x00, 16], offset: [0x10, 4], length: [0x14, 4] } as const satisfies Layout

export const certificateTableBytesMax = 256 * 1024
const entriesMax = 64

export type CertificateEntry = {
  /** GUID in its usual form, lower case. */
  readonly guid: string
  readonly bytes: Uint8Array
}

/** Reads the entries with contents before the terminating entry of zeros. Throws Malformed for a duplicate GUID. */
export function readCertificateTable(bytes: Uint8Array): CertificateEntry[] {
  const what = 'certificate table'
  wellFormed(bytes.length <= certificateTableBytesMax, `${what}: ${bytes.length} bytes`)
  const size = layoutBytes(ENTRY)
  const entries = new Map<string, Uint8Array>()
  for (let at = 0; ; at += size) {
    const { guid, offset, length } = readFields(what, bytes.subarray(at), ENTRY)
    if (isZero(guid)) return [...entries].flatMap(([guid, bytes]) => (bytes.length === 0 ? [] : [{ guid, bytes }]))
    const name = guidText(guid)
    wellFormed(entries.size < entriesMax, `${what}: more than ${entriesMax} entries`)
    wellFormed(!entries.has(name), `${what}: ${name} stands in it twice`)
    // A host can list a certificate that it does not have: the entry is empty, wherever it points.
    wellFormed(length === 0 || offset + length <= bytes.length, `${what}: ${name} ends after the table`)
    entries.set(name, bytes.slice(offset, offset + length))
  }
}
