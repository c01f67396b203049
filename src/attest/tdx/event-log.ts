// Event logs of a TD's firmware and loader (ACPI CCEL): reading, and replaying to the RTMRs of a quote. Pure.
// UEFI 2.10, section 38.4 (registers by index); TCG PC Client Platform Firmware Profile 1.06, section 10.2 (event
// structures). Little-endian.

import { concat, equalConstantTime, fromUtf8 } from '../../base/bytes.ts'
import { type Reader, reader } from '../encoding/reader.ts'
import { sha384 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'

export type TdxEvent = {
  /** 0 to 3. */
  readonly rtmr: number
  /** Type as written by the firmware: no register measures it. */
  readonly type: number
  /** SHA-384. */
  readonly digest: Uint8Array
  /** Data as written by the firmware. It proves nothing unless `isTdxDataMeasured` holds. */
  readonly data: Uint8Array
}

export const tdxEventLogBytesMax = 4 * 1024 * 1024
const eventCountMax = 16_384
const rtmrCount = 4
const digestBytes = 48
const sha384Id = 0x000c
/** EV_NO_ACTION: informational, never extended. */
const noAction = 0x00000003
const what = 'TDX event log'

/** Returns the events that extend registers. The log may end with unused space of its area. Throws Malformed. */
export function decodeTdxEventLog(bytes: Uint8Array): readonly TdxEvent[] {
  wellFormed(bytes.length <= tdxEventLogBytesMax, `${what}: ${bytes.length} bytes, at most ${tdxEventLogBytesMax}`)
  const read = reader(bytes, what, 'little')
  readSpecId(read)
  const events: TdxEvent[] = []
  for (let count = 0; !isUnused(bytes.subarray(bytes.length - read.left())); count += 1) {
    wellFormed(count < eventCountMax, `${what}: more than ${eventCountMax} events`)
    const [index, type] = [read.u32(), read.u32()]
    wellFormed(read.u32() === 1 && read.u16() === sha384Id, `${what}: an event without exactly one SHA-384 digest`)
    const digest = read.bytes(digestBytes)
    const data = read.bytes(read.u32())
    if (type === noAction) continue
    // Index 0 is MRTD, which no event extends.
    wellFormed(index >= 1 && index <= rtmrCount, `${what}: an event of register ${index}, which is no RTMR`)
    events.push({ rtmr: index - 1, type, digest, data })
  }
  return events
}

/** Reports whether the rest of the log is empty, all zeros or all ones. No event begins with 12 such bytes. */
function isUnused(rest: Uint8Array): boolean {
  const [filler] = rest
  return filler === undefined || ((filler === 0 || filler === 0xff) && rest.every(byte => byte === filler))
}

const signature = 'Spec ID Event03\0'

/** Reads the first event, which has the old format and lists the digests of all others. */
function readSpecId(read: Reader): void {
  read.u32()
  wellFormed(read.u32() === noAction, `${what}: it does not begin with a Spec ID event`)
  wellFormed(
    read.bytes(20).every(byte => byte === 0),
    `${what}: a Spec ID event with a digest`,
  )
  const size = read.u32()
  wellFormed(size <= read.left(), `${what}: truncated`)
  const body = reader(read.bytes(size), `${what}: Spec ID event`, 'little')
  const name = body.bytes(signature.length)
  wellFormed(name.every(byte => byte < 0x80) && fromUtf8(name) === signature, `${what}: not crypto-agile`)
  body.bytes(8) // platform class, version, errata, size of a UINTN
  const isSha384 = body.u32() === 1 && body.u16() === sha384Id && body.u16() === digestBytes
  wellFormed(isSha384, `${what}: other digests than SHA-384 alone`)
  body.bytes(body.u8()) // vendor information
  body.end()
}

/** Returns the four registers after these events. A TD starts with zeros. */
export function replayRtmrs(events: readonly TdxEvent[]): readonly Uint8Array[] {
  const rtmrs: Uint8Array[] = Array.from({ length: rtmrCount }, () => new Uint8Array(digestBytes))
  for (const { rtmr, digest } of events) {
    rtmrs[rtmr] = sha384(concat(rtmrs[rtmr] ?? new Uint8Array(digestBytes), digest))
  }
  return rtmrs
}

/** Reports whether the event's data hash to its digest. Only then does the log authenticate the data. */
export function isTdxDataMeasured({ digest, data }: TdxEvent): boolean {
  return equalConstantTime(sha384(data), digest)
}
