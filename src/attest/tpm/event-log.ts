// TCG2 crypto-agile event logs. Pure; event-log-verify.ts replays them. TCG PC Client Platform Firmware Profile 1.06:
// section 10.2 (event structures), 10.4.5 (Spec ID event), 10.4.5.3 (StartupLocality). Little-endian.

import { fromUtf8 } from '../../base/bytes.ts'
import { type Reader, reader } from '../encoding/reader.ts'
import type { HashName } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { BANKS, bankOf } from './algorithm.ts'

export type LogEvent = {
  readonly pcr: number
  readonly type: number
  /** One digest for each of the log's banks. */
  readonly digests: ReadonlyMap<HashName, Uint8Array>
  /** Data as written by the firmware. It proves nothing unless `isDataMeasured` of event-log-verify.ts holds. */
  readonly data: Uint8Array
}

export type EventLog = {
  readonly banks: readonly HashName[]
  /** The locality that started the TPM; 0 if the log does not name it. PCR 0 starts with it. */
  readonly startupLocality: number
  /** Events without the Spec ID event. */
  readonly events: readonly LogEvent[]
}

const EVENT_LOG_LIMITS = { sizeBytesMax: 4 * 1024 * 1024, eventCountMax: 16_384, pcrCount: 24 } as const

/** EV_NO_ACTION: informational, never extended into a PCR. */
export const noAction = 0x00000003

/** Decodes a log. Throws Malformed; for the old SHA-1 format, the message identifies it. */
export function decodeEventLog(bytes: Uint8Array): EventLog {
  wellFormed(bytes.length <= EVENT_LOG_LIMITS.sizeBytesMax, 'event log: too long')
  const read = reader(bytes, 'event log', 'little')
  const banks = readSpecId(read)
  const events: LogEvent[] = []
  let startupLocality: number | null = null
  while (read.left() > 0) {
    wellFormed(events.length < EVENT_LOG_LIMITS.eventCountMax, 'event log: too many events')
    const event = readEvent(read, banks)
    const locality = localityOf(event)
    if (locality !== null) {
      const isFirst = startupLocality === null && !events.some(event => event.pcr === 0 && event.type !== noAction)
      wellFormed(isFirst, 'event log: StartupLocality twice, or after an extension of PCR 0')
      startupLocality = locality
    }
    events.push(event)
  }
  return { banks, startupLocality: startupLocality ?? 0, events }
}

const headerDigestBytes = 20
const signatureBytes = 16
const specIdSignature = 'Spec ID Event03\0'
const localitySignature = 'StartupLocality\0'
/** Localities that can start a TPM (section 10.4.5.3); 4 means a hardware root of trust for measurement. */
const localities: readonly number[] = [0, 3, 4]
/** Used by EV_NO_ACTION events in place of a PCR. */
const noPcr = 0xffffffff

/** Reads the first event, which has the old format and lists the banks of all others. */
function readSpecId(read: Reader): HashName[] {
  wellFormed(read.u32() === 0 && read.u32() === noAction, oldFormat)
  wellFormed(
    read.bytes(headerDigestBytes).every(byte => byte === 0),
    'event log: Spec ID event with a digest',
  )
  const size = read.u32()
  wellFormed(size <= read.left(), 'event log: truncated')
  const body = reader(read.bytes(size), 'event log: Spec ID event', 'little')
  wellFormed(size >= signatureBytes && asciiOf(body.bytes(signatureBytes)) === specIdSignature, oldFormat)
  body.u32() // platform class
  body.bytes(4) // minor version, major version, errata, size of a UINTN
  const count = body.u32()
  wellFormed(count > 0 && count <= Object.keys(BANKS).length, 'event log: number of banks')
  const banks: HashName[] = []
  for (let i = 0; i < count; i += 1) {
    const bank = bankOf(body.u16())
    wellFormed(bank !== null && !banks.includes(bank), 'event log: unknown bank, or one twice')
    wellFormed(body.u16() === BANKS[bank].sizeBytes, 'event log: digest size')
    banks.push(bank)
  }
  body.bytes(body.u8()) // vendor information
  body.end()
  return banks
}

const oldFormat = 'event log: not crypto-agile (an old log holds SHA-1 alone, which is refused)'

/** Reads a TCG_PCR_EVENT2. */
function readEvent(read: Reader, banks: readonly HashName[]): LogEvent {
  const pcr = read.u32()
  const type = read.u32()
  wellFormed(pcr < EVENT_LOG_LIMITS.pcrCount || (pcr === noPcr && type === noAction), 'event log: no such PCR')
  wellFormed(read.u32() === banks.length, 'event log: an event without a digest for each bank')
  const digests = new Map<HashName, Uint8Array>()
  for (const _ of banks) {
    const bank = bankOf(read.u16())
    wellFormed(bank !== null && banks.includes(bank) && !digests.has(bank), 'event log: digest of another bank')
    digests.set(bank, read.bytes(BANKS[bank].sizeBytes))
  }
  return { pcr, type, digests, data: read.bytes(read.u32()) }
}

/** Returns the locality; null if the event is not a StartupLocality. */
function localityOf(event: LogEvent): number | null {
  if (event.type !== noAction || event.pcr !== 0) return null
  if (asciiOf(event.data.subarray(0, signatureBytes)) !== localitySignature) return null
  const locality = event.data[signatureBytes]
  const isKnown = locality !== undefined && event.data.length === signatureBytes + 1 && localities.includes(locality)
  wellFormed(isKnown, 'event log: StartupLocality')
  return locality
}

function asciiOf(bytes: Uint8Array): string {
  return bytes.every(byte => byte < 0x80) ? fromUtf8(bytes) : ''
}
