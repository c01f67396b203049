// PCR values in files: JSON, and the formats of tpm2_quote and tpm2_pcrread of tpm2-tools. Pure.
//
// The values are untrusted until they hash to the digest that the TPM has signed (tpm-quote-pcrs).

import { parsedJson } from '../../../attest/encoding/json.ts'
import { type Reader, reader } from '../../../attest/encoding/reader.ts'
import type { HashName } from '../../../attest/hash.ts'
import { wellFormed } from '../../../attest/malformed.ts'
import { BANKS, bankNames, bankOf } from '../../../attest/tpm/algorithm.ts'
import type { PcrValues } from '../../../attest/tpm/quote.ts'
import type { Quote } from '../../../attest/tpm/structures.ts'
import { fromUtf8, toHex } from '../../../base/bytes.ts'
import { resultOr } from '../../../base/result-or.ts'
import { pastedHex } from '../../../terminal/hex.ts'

/** TPMS_ATTEST selects from at most 32 PCRs. */
const pcrCount = 32

/**
 * Reads values, recognizing the form by its bytes: JSON like {"sha256": {"0": "HEX"}}; the text of tpm2_pcrread; the
 * structures of `tpm2_quote -o` (TPML_PCR_SELECTION and TPML_DIGESTs, little-endian); or the bare values in the order
 * of the quote, as written by `-F values`. Throws Malformed.
 */
export function readPcrValues(bytes: Uint8Array, { selections }: Pick<Quote, 'selections'>): PcrValues {
  const text = resultOr(() => fromUtf8(bytes), '\0')
  if (/^[\t\n\r -~]+$/.test(text)) return text.trimStart().startsWith('{') ? ofJson(bytes) : ofText(text)
  if (isSerialized(bytes)) return ofSerialized(reader(bytes, what, 'little'))
  const sizeBytes = selections.reduce((sum, { bank, pcrs }) => sum + pcrs.length * BANKS[bank].sizeBytes, 0)
  wellFormed(
    bytes.length === sizeBytes,
    `${what}: ${bytes.length} bytes are neither JSON, nor the text of tpm2_pcrread, nor the structures of tpm2_quote, nor the ${sizeBytes} bytes of the quoted values`,
  )
  const read = reader(bytes, what)
  return valuesOf(selections.flatMap(({ bank, pcrs }) => pcrs.map(pcr => [bank, pcr, takeValue(read, bank)])))
}

/** Returns the JSON form. */
export function pcrDocument(pcrs: PcrValues): Record<string, Record<string, string>> {
  return Object.fromEntries(
    bankNames.flatMap(bank => {
      const values = [...(pcrs[bank] ?? [])].map(([pcr, value]): [string, string] => [`${pcr}`, toHex(value)])
      return values.length === 0 ? [] : [[toolName(bank), Object.fromEntries(values)]]
    }),
  )
}

/** Returns the bank's name in tpm2-tools and the JSON form, such as `sha256`. */
function toolName(bank: HashName): string {
  return bank.replace('-', '').toLowerCase()
}

const what = 'PCR values'

type Entry = readonly [bank: HashName, pcr: number, value: Uint8Array]

function valuesOf(entries: readonly Entry[]): PcrValues {
  const values: { [Bank in HashName]?: Map<number, Uint8Array> } = {}
  for (const [bank, pcr, value] of entries) {
    const ofBank = values[bank] ?? new Map<number, Uint8Array>()
    wellFormed(!ofBank.has(pcr), `${what}: ${bank} PCR ${pcr} stands twice`)
    values[bank] = ofBank.set(pcr, value)
  }
  wellFormed(entries.length > 0, `${what}: there is none`)
  return values
}

function takeValue(read: Reader, bank: HashName): Uint8Array {
  return read.bytes(BANKS[bank].sizeBytes)
}

function ofJson(bytes: Uint8Array): PcrValues {
  const banks = membersOf(parsedJson(what, bytes), 'the document')
  return valuesOf(
    banks.flatMap(([name, ofBank]) => membersOf(ofBank, name).map(([pcr, value]) => entryOf(name, pcr, value))),
  )
}

function membersOf(value: unknown, name: string): [string, unknown][] {
  wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `${what}: ${name} is no object`)
  return Object.entries(value)
}

function ofText(text: string): PcrValues {
  const entries: Entry[] = []
  let bank: string | null = null
  for (const line of text.split('\n').map(line => line.trim())) {
    const head = /^([a-z0-9_]+) ?:$/.exec(line)?.[1]
    const [, pcr, value] = /^([0-9]{1,2}) *: *(\S+)$/.exec(line) ?? []
    if (line === '') continue
    if (head !== undefined) bank = head
    else {
      wellFormed(bank !== null && pcr !== undefined, `${what}: neither JSON nor the text of tpm2_pcrread`)
      entries.push(entryOf(bank, pcr, value))
    }
  }
  return valuesOf(entries)
}

function entryOf(name: string, pcr: string, value: unknown): Entry {
  const bank = bankNames.find(bank => toolName(bank) === name)
  wellFormed(bank !== undefined, `${what}: ${JSON.stringify(name.slice(0, 16))} is none of sha256, sha384 and sha512`)
  wellFormed(/^(0|[1-9][0-9]?)$/.test(pcr) && Number(pcr) < pcrCount, `${what}: ${name}: there is no such PCR`)
  const bytes = typeof value === 'string' ? pastedHex(value) : null
  const { sizeBytes } = BANKS[bank]
  wellFormed(bytes?.length === sizeBytes, `${what}: ${name} PCR ${pcr} is not ${sizeBytes} bytes in hexadecimal`)
  return [bank, Number(pcr), bytes]
}

/** TPM 2.0 Library, Part 2: TPML_PCR_SELECTION of 16, TPML_DIGEST of 8, with the padding of tpm2-tss's structures. */
const LAYOUT = {
  selections: 16,
  selectionBytes: 4 + 16 * 8,
  digests: 8,
  digestBytes: 64,
  listBytes: 4 + 8 * 66,
} as const

/** Recognizes the form by its length and both of its counts, which bare values match with a chance below 2^-60. */
function isSerialized(bytes: Uint8Array): boolean {
  const { selections, selectionBytes, listBytes } = LAYOUT
  const lists = (bytes.length - selectionBytes - 4) / listBytes
  if (!Number.isInteger(lists) || lists < 1) return false
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const count = view.getUint32(0, true)
  return count >= 1 && count <= selections && view.getUint32(selectionBytes, true) === lists
}

function ofSerialized(read: Reader): PcrValues {
  const count = read.u32()
  const selected = Array.from({ length: LAYOUT.selections }, (_, at) => {
    const id = read.u16()
    const sizeBytes = read.u8()
    const bitmap = read.bytes(5).subarray(0, Math.min(sizeBytes, 4))
    if (at >= count) return []
    const bank = bankOf(id)
    wellFormed(bank !== null, `${what}: unknown bank`)
    const pcrs = Array.from({ length: pcrCount }, (_, pcr) => pcr)
    return pcrs.filter(pcr => ((bitmap[pcr >> 3] ?? 0) & (1 << (pcr & 7))) !== 0).map(pcr => [bank, pcr] as const)
  }).flat()
  const digests = Array.from({ length: read.u32() }, () => readDigests(read)).flat()
  read.end()
  wellFormed(digests.length === selected.length, `${what}: ${digests.length} values for ${selected.length} PCRs`)
  return valuesOf(
    selected.map(([bank, pcr], at): Entry => {
      const value = digests[at] ?? new Uint8Array(0)
      wellFormed(value.length === BANKS[bank].sizeBytes, `${what}: ${bank} PCR ${pcr} has ${value.length} bytes`)
      return [bank, pcr, value]
    }),
  )
}

/** Reads TPML_DIGEST: the count, then space for eight digests. */
function readDigests(read: Reader): Uint8Array[] {
  const count = read.u32()
  wellFormed(count <= LAYOUT.digests, `${what}: a list of ${count} values`)
  const all = Array.from({ length: LAYOUT.digests }, () => {
    const sizeBytes = read.u16()
    const room = read.bytes(LAYOUT.digestBytes)
    wellFormed(sizeBytes <= room.length, `${what}: a value of ${sizeBytes} bytes`)
    return room.subarray(0, sizeBytes)
  })
  return all.slice(0, count)
}
