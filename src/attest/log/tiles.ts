// Tiles of a log (C2SP tlog-tiles): the resources that serve its hashes and entries, each with its own path. Pure.

import { concat } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'

export const tileHashes = 256
export const tileBytes = tileHashes * 32
/** Longest entry in bytes: its length is a u16. */
export const entryBytesMax = 65_535

export type Tile = {
  /** Level of hashes, from 0; 'entries' for bundles of entries. */
  readonly level: number | 'entries'
  readonly index: number
  /** 1 to 256. Below 256, the tile is partial. */
  readonly width: number
}

/** Returns the path below the log's prefix: `tile/0/x001/x234/067.p/8`. */
export function tilePath({ level, index, width }: Tile): string {
  const digits = `${index}`.padStart(Math.ceil(`${index}`.length / 3) * 3, '0')
  const parts = digits.match(/.{3}/g) ?? []
  const path = parts.map((part, at) => (at === parts.length - 1 ? part : `x${part}`)).join('/')
  return `tile/${level}/${path}${width === tileHashes ? '' : `.p/${width}`}`
}

/** Parses a path. Null for any other path: each tile has exactly one spelling. */
export function tileAt(path: string): Tile | null {
  const [, level = '', index = '', width] =
    /^tile\/(0|[1-9][0-9]?|entries)\/((?:x[0-9]{3}\/){0,5}[0-9]{3})(?:\.p\/([1-9][0-9]{0,2}))?$/.exec(path) ?? []
  if (level === '') return null
  const tile: Tile = {
    level: level === 'entries' ? level : Number(level),
    index: Number(index.replaceAll(/[x/]/g, '')),
    width: width === undefined ? tileHashes : Number(width),
  }
  const isTile = tile.width <= tileHashes && (level === 'entries' || Number(level) <= levelMax)
  return isTile && tilePath(tile) === path ? tile : null
}

/** The last level that a tree with indices of 53 bits has. */
const levelMax = 6

/** Returns the width of a tile in a tree of this size; 0 if the tile does not exist. */
export function tileWidth(size: number, { level, index }: Pick<Tile, 'level' | 'index'>): number {
  const hashes = Math.floor(size / tileHashes ** (level === 'entries' ? 0 : level))
  return Math.max(0, Math.min(tileHashes, hashes - index * tileHashes))
}

/** Encodes entries, each preceded by its length as a big-endian u16. */
export function encodeEntries(entries: readonly Uint8Array[]): Uint8Array {
  return concat(
    ...entries.flatMap(entry => {
      wellFormed(entry.length <= entryBytesMax, `log entry: ${entry.length} bytes`)
      return [Uint8Array.of(entry.length >> 8, entry.length & 0xff), entry]
    }),
  )
}

/** Decodes entries. Throws Malformed unless there are exactly `count`. */
export function decodeEntries(bytes: Uint8Array, count: number): Uint8Array[] {
  const entries: Uint8Array[] = []
  let at = 0
  while (at < bytes.length) {
    const [high, low] = [bytes[at], bytes[at + 1]]
    wellFormed(high !== undefined && low !== undefined, 'entry bundle: it ends within a length')
    const end = at + 2 + high * 256 + low
    wellFormed(end <= bytes.length && entries.length < count, 'entry bundle: an entry ends after it, or is too many')
    entries.push(bytes.slice(at + 2, end))
    at = end
  }
  wellFormed(entries.length === count, `entry bundle: ${entries.length} entries, not ${count}`)
  return entries
}
