// Unpacks archives as a build does, and packs some of them with programs. Effects: temporary directories, processes.

import { expect } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import type { TarEntry } from '../../../scripts/rigs/archive-bytes.ts'
import { listTree } from '../../../scripts/rigs/guest/root.ts'
import { SourceFailure } from '../../../src/linux/source/failure.ts'
import { unpackArchive } from '../../../src/linux/source/unpack.ts'

const bounds = { bytesMax: 64 * 1024, entriesMax: 40, unprivileged: [] }

/** The tree that comes out, or why none does. Nothing may ever be written beside the directory. */
export async function unpacked(archive: Uint8Array, limits = bounds): Promise<string[] | string> {
  const dir = fs.mkdtempSync('/tmp/strongroom-unpack-')
  try {
    const [device, into] = [join(dir, 'device'), join(dir, 'into')]
    fs.mkdirSync(into)
    // Bytes after the archive on the disk belong to somebody else.
    fs.writeFileSync(device, Buffer.concat([archive, Buffer.alloc(4096, 0x5a)]))
    try {
      await unpackArchive({ device, sizeBytes: archive.length, into, ...limits })
    } catch (error) {
      if (!(error instanceof SourceFailure)) throw error
      return error.message
    } finally {
      expect(fs.readdirSync(dir).sort()).toEqual(['device', 'into'])
    }
    return listTree(into)
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

/** By the program of this name. */
export function packedWith(program: 'xz' | 'zstd', bytes: Uint8Array, ...options: string[]): Uint8Array {
  const packed = Bun.spawnSync([program, '--compress', '--stdout', ...options], { stdin: bytes })
  expect([program, packed.exitCode, packed.stderr.toString()]).toEqual([program, 0, ''])
  return packed.stdout
}

/** `d\u00e9` in code page 437, which is no UTF-8. */
export const codePageName = Uint8Array.of(0x64, 0x82)

/** Info-ZIP's extra field with a name in UTF-8. */
export function unicodePath(rawName: Uint8Array, name: string): Uint8Array {
  const field = Buffer.alloc(9)
  field.writeUInt16LE(0x7075, 0)
  field.writeUInt16LE(5 + Buffer.byteLength(name), 2)
  field.writeUInt8(1, 4)
  field.writeUInt32LE(Bun.hash.crc32(rawName), 5)
  return Buffer.concat([field, Buffer.from(name)])
}

export const file = (name: string, more: Partial<TarEntry> = {}): TarEntry => ({ name, content: 'x', ...more })
