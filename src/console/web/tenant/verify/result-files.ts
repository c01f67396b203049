// Reads the archive of a build's result in the browser: gzip by the platform, then ustar and pax. Pure; throws
// Malformed.

import { Malformed, wellFormed } from '../../../../attest/malformed.ts'
import { isComponent, RESULT_PATHS } from '../../../../attest/provenance/paths.ts'
import { fromUtf8, toHex } from '../../../../base/bytes.ts'
import {
  decodePax,
  decodeUstar,
  tarBlockBytes,
  tarPaddingBytes,
  type UstarHeader,
  untilNul,
} from '../../../../base/ustar.codec.ts'
import type { ResultFiles } from '../../../../verifier/build/question.ts'

/** Unpacked. A larger one is for the command line, which does not hold it in memory. */
export const unpackedBytesMax = 1_073_741_824
const filesMax = 20_000
const depthMax = 20
const documentBytesMax = 16_777_216

type Bytes = Uint8Array<ArrayBuffer>

export async function readResultFiles(archive: Bytes): Promise<ResultFiles> {
  const tar = await unpacked(archive)
  const documents = new Map<string, Uint8Array>()
  const digests = new Map<string, string>()
  for (const { path, content } of filesIn(tar)) {
    wellFormed(digests.size < filesMax, `more than ${filesMax} files`)
    const parts = path.split('/')
    const isInside = parts.length <= depthMax && parts.every(isComponent)
    wellFormed(isInside, `the name ${JSON.stringify(path)} leaves the archive, or is not of plain ASCII`)
    wellFormed(!digests.has(path), `${JSON.stringify(path)} stands twice in it`)
    digests.set(path, toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', content))))
    if (isDocument(path) && content.length <= documentBytesMax) documents.set(path, content)
  }
  return withoutTop({ documents, digests })
}

async function unpacked(archive: Bytes): Promise<Bytes> {
  if (archive[0] !== 0x1f || archive[1] !== 0x8b) return archive
  const parts: Bytes[] = []
  let sizeBytes = 0
  const stream = new Blob([archive]).stream().pipeThrough(new DecompressionStream('gzip'))
  try {
    for await (const part of stream) {
      sizeBytes += part.length
      wellFormed(sizeBytes <= unpackedBytesMax, `more than ${unpackedBytesMax} bytes, unpacked: use the command line`)
      parts.push(part)
    }
  } catch (error) {
    if (error instanceof Malformed) throw error
    throw new Malformed('archive: its gzip is damaged')
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer())
}

function* filesIn(tar: Bytes): Generator<{ readonly path: string; readonly content: Bytes }> {
  let longName: string | null = null
  for (let at = 0; ; ) {
    const header = headerAt(tar, at)
    if (header === null) return
    at += tarBlockBytes
    const { type, sizeBytes } = header
    if (typeof sizeBytes !== 'number') throw new Malformed('archive: a header with a size that is not octal')
    const content = tar.subarray(at, at + sizeBytes)
    wellFormed(content.length === sizeBytes, 'archive: it ends early')
    at += sizeBytes + tarPaddingBytes(sizeBytes)
    if (type === 'L') longName = fromUtf8(untilNul(content))
    else if (type === 'x') longName = pathOf(content) ?? longName
    else if (type !== 'g') {
      const path = (longName ?? fromUtf8(header.name)).replace(/^(?:\.\/)+/, '')
      longName = null
      wellFormed(type === '0' || type === '5', `archive: ${JSON.stringify(path)} is neither a file nor a directory`)
      if (type === '0') yield { path, content }
    }
  }
}

/** Null: the end. */
function headerAt(tar: Bytes, at: number): UstarHeader | null {
  const block = tar.subarray(at, at + tarBlockBytes)
  wellFormed(block.length === tarBlockBytes, 'archive: it ends early')
  const read = decodeUstar(block)
  wellFormed(read.kind !== 'no-magic' && read.kind !== 'wrong-checksum', 'archive: a header that is damaged')
  return read.kind === 'header' ? read.header : null
}

function pathOf(record: Bytes): string | null {
  const path = decodePax(record)?.find(([key]) => key === 'path')
  return path === undefined ? null : fromUtf8(path[1])
}

const names: ReadonlySet<string> = new Set(
  Object.values(RESULT_PATHS).filter(path => path !== RESULT_PATHS.artifacts && path !== RESULT_PATHS.log),
)

/** Right in the result, or in its one top-level directory. */
function isDocument(path: string): boolean {
  return names.has(path) || names.has(path.slice(path.indexOf('/') + 1))
}

function withoutTop({ documents, digests }: ResultFiles): ResultFiles {
  const paths = [...digests.keys()]
  const top = `${(paths[0] ?? '').split('/')[0]}/`
  if (digests.has(RESULT_PATHS.provenance) || !paths.every(path => path.startsWith(top))) return { documents, digests }
  const renamed = <T>(map: ReadonlyMap<string, T>) =>
    new Map([...map].map(([path, value]) => [path.slice(top.length), value]))
  return { documents: renamed(documents), digests: renamed(digests) }
}
