// Archives byte by byte, so that each can be wrong in exactly one way. Pure.

import { createHash } from 'node:crypto'
import { deflateRawSync } from 'node:zlib'

export type TarEntry = {
  readonly name: string | Uint8Array
  readonly type?: string
  readonly content?: string | Uint8Array
  readonly link?: string
  readonly mode?: string
  readonly size?: string
  readonly prefix?: string
  readonly magic?: string
  readonly checksum?: string
}

const toBytes = (value: string | Uint8Array): Uint8Array => (typeof value === 'string' ? Buffer.from(value) : value)

export function tarHeader(entry: TarEntry): Uint8Array {
  const block = new Uint8Array(512)
  const put = (offset: number, value: string | Uint8Array) => block.set(toBytes(value), offset)
  put(0, entry.name)
  put(100, entry.mode ?? '0000644\0')
  put(108, '0000000\x000000000\0')
  put(
    124,
    entry.size ??
      `${toBytes(entry.content ?? '')
        .length.toString(8)
        .padStart(11, '0')}\0`,
  )
  put(136, '00000000000\0')
  put(148, '        ')
  put(156, entry.type ?? '0')
  put(157, entry.link ?? '')
  put(257, entry.magic ?? 'ustar\x0000')
  put(345, entry.prefix ?? '')
  const sum = block.reduce((all, byte) => all + byte, 0)
  put(148, entry.checksum ?? `${sum.toString(8).padStart(6, '0')}\0 `)
  return block
}

export const tarEnd = new Uint8Array(1024)

export function tarOf(entries: readonly TarEntry[], end: Uint8Array = tarEnd): Uint8Array {
  const parts = entries.flatMap(entry => {
    const content = toBytes(entry.content ?? '')
    return [tarHeader(entry), content, new Uint8Array((512 - (content.length % 512)) % 512)]
  })
  return Buffer.concat([...parts, end])
}

/** A pax record with its own length. */
export function paxRecord(key: string, value: string): string {
  const restBytes = Buffer.byteLength(` ${key}=${value}\n`)
  let length = restBytes + 1
  while (String(length).length + restBytes !== length) length += 1
  return `${length} ${key}=${value}\n`
}

export type ZipEntry = {
  readonly name: string | Uint8Array
  readonly content?: string | Uint8Array
  readonly stored?: boolean
  readonly mode?: number
  /** Upper byte of `version made by`; 3, Unix, unless given. */
  readonly madeBy?: number
  readonly flags?: number
  readonly method?: number
  readonly localName?: string
  readonly localSize?: number
  readonly centralSize?: number
  readonly extra?: Uint8Array
  readonly descriptor?: boolean
  readonly offset?: number
  readonly packed?: Uint8Array
}

export type ZipChange = {
  readonly comment?: Uint8Array
  readonly entryCount?: number
  readonly prefix?: Uint8Array
  readonly between?: Uint8Array
  readonly after?: Uint8Array
}

export function zipOf(entries: readonly ZipEntry[], change: ZipChange = {}): Uint8Array {
  const parts: Uint8Array[] = [change.prefix ?? new Uint8Array(0)]
  const directory: Uint8Array[] = []
  let at = parts[0]?.length ?? 0
  for (const entry of entries) {
    const content = toBytes(entry.content ?? '')
    const packed = entry.packed ?? (entry.stored === true ? content : deflateRawSync(content))
    const method = entry.method ?? (entry.stored === true ? 0 : 8)
    const extra = entry.extra ?? new Uint8Array(0)
    const flags = (entry.flags ?? 0) | (entry.descriptor === true ? 8 : 0)
    const crc = Bun.hash.crc32(content)
    const size = entry.centralSize ?? content.length
    const local = Buffer.alloc(30)
    local.writeUInt32LE(0x04034b50, 0)
    local.writeUInt16LE(flags, 6)
    local.writeUInt16LE(method, 8)
    if (entry.descriptor !== true) {
      local.writeUInt32LE(crc, 14)
      local.writeUInt32LE(packed.length, 18)
      local.writeUInt32LE(entry.localSize ?? size, 22)
    }
    const localName = toBytes(entry.localName ?? entry.name)
    local.writeUInt16LE(localName.length, 26)
    local.writeUInt16LE(extra.length, 28)
    const pieces = [local, localName, extra, packed]
    if (entry.descriptor === true) {
      const descriptor = Buffer.alloc(16)
      descriptor.writeUInt32LE(0x08074b50, 0)
      descriptor.writeUInt32LE(crc, 4)
      descriptor.writeUInt32LE(packed.length, 8)
      descriptor.writeUInt32LE(size, 12)
      pieces.push(descriptor)
    }
    const central = Buffer.alloc(46)
    const name = toBytes(entry.name)
    central.writeUInt32LE(0x02014b50, 0)
    central.writeUInt8(entry.madeBy ?? 3, 5)
    central.writeUInt16LE(flags, 8)
    central.writeUInt16LE(method, 10)
    central.writeUInt32LE(crc, 16)
    central.writeUInt32LE(packed.length, 20)
    central.writeUInt32LE(size, 24)
    central.writeUInt16LE(name.length, 28)
    central.writeUInt16LE(extra.length, 30)
    central.writeUInt16LE(entry.mode ?? 0o100644, 40)
    central.writeUInt32LE(entry.offset ?? at, 42)
    directory.push(central, name, extra)
    parts.push(...pieces)
    at += pieces.reduce((sum, piece) => sum + piece.length, 0)
    if (change.between !== undefined) {
      parts.push(change.between)
      at += change.between.length
    }
  }
  const directoryBytes = Buffer.concat(directory)
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x06054b50, 0)
  end.writeUInt16LE(change.entryCount ?? entries.length, 8)
  end.writeUInt16LE(change.entryCount ?? entries.length, 10)
  end.writeUInt32LE(directoryBytes.length, 12)
  end.writeUInt32LE(at, 16)
  const comment = change.comment ?? new Uint8Array(0)
  end.writeUInt16LE(comment.length, 20)
  return Buffer.concat([...parts, directoryBytes, end, comment, change.after ?? new Uint8Array(0)])
}

export const sha256Hex = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')
