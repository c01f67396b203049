// The result as a tar.gz that depends on the files alone: one top-level directory, entries sorted as bytes, one time,
// owner 0 (POSIX.1-2017 pax(1), "ustar Interchange Format"). Effects: reads the artifacts.

import { createGzip } from 'node:zlib'
import { artifactPath, isComponent } from '../attest/provenance/paths.ts'
import { encodeUstar, tarBlockBytes, tarPaddingBytes, ustarPath, ustarSizeBytesEnd } from '../base/ustar.codec.ts'
import { openRegular } from './collect.ts'
import { BuildFailure, refuseUnless } from './failure.ts'

type ResultEntry = { readonly path: string } & (
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'artifact'; readonly file: string; readonly sizeBytes: number; readonly executable: boolean }
)

const chunkBytes = 1024 * 1024
/** GNU tar and pax end at a multiple of this. */
const recordBytes = 10_240

/** gzip of the tar, in chunks. Failure `build_failed` for a path that ustar cannot hold. */
export async function* resultArchive(project: string, entries: readonly ResultEntry[]): AsyncGenerator<Uint8Array> {
  refuseUnless(isComponent(project), 'internal', () => 'result: the project has no plain name')
  // Level 6, independent of the default: the same bytes from the same files. The header has no time and no name.
  const gzip = createGzip({ level: 6 })
  const fed = feed(tarOf(project, entries), gzip)
  fed.catch(error => gzip.destroy(error))
  yield* gzip
  await fed
}

async function feed(chunks: AsyncIterable<Uint8Array>, gzip: ReturnType<typeof createGzip>): Promise<void> {
  for await (const chunk of chunks) {
    if (gzip.destroyed) return
    if (!gzip.write(chunk)) await new Promise(resolve => gzip.once('drain', resolve))
  }
  gzip.end()
}

async function* tarOf(project: string, entries: readonly ResultEntry[]): AsyncGenerator<Uint8Array> {
  let total = 0
  const sorted = withDirectories(project, entries).sort((a, b) =>
    Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)),
  )
  for (const entry of sorted) {
    const sizeBytes = entry.kind === 'directory' ? 0 : entry.kind === 'bytes' ? entry.bytes.length : entry.sizeBytes
    const isExecutable = entry.kind === 'directory' || (entry.kind === 'artifact' && entry.executable)
    yield header({
      path: entry.path,
      mode: isExecutable ? 0o755 : 0o644,
      sizeBytes,
      isDirectory: entry.kind === 'directory',
    })
    if (entry.kind === 'bytes') yield entry.bytes
    if (entry.kind === 'artifact') yield* contentOf(entry.file, entry.sizeBytes)
    const padding = tarPaddingBytes(sizeBytes)
    yield new Uint8Array(padding)
    total += tarBlockBytes + sizeBytes + padding
  }
  yield new Uint8Array(2 * tarBlockBytes + ((recordBytes - ((total + 2 * tarBlockBytes) % recordBytes)) % recordBytes))
}

type TarEntry = ResultEntry | { readonly kind: 'directory'; readonly path: string }

function withDirectories(project: string, entries: readonly ResultEntry[]): TarEntry[] {
  const directories = new Set([`${project}/`])
  for (const { path } of entries) {
    const components = path.split('/')
    for (let depth = 1; depth < components.length; depth += 1)
      directories.add(`${[project, ...components.slice(0, depth)].join('/')}/`)
  }
  return [
    ...[...directories].map((path): TarEntry => ({ kind: 'directory', path })),
    ...entries.map(entry => ({ ...entry, path: `${project}/${entry.path}` })),
  ]
}

async function* contentOf(path: string, sizeBytes: number): AsyncGenerator<Uint8Array> {
  const file = await openRegular(path, JSON.stringify(path.slice(-200)))
  try {
    for (let at = 0; at < sizeBytes; ) {
      // A new chunk each time: gzip may still hold the last one.
      const chunk = new Uint8Array(Math.min(chunkBytes, sizeBytes - at))
      const { bytesRead } = await file.read(chunk, 0, chunk.length, at)
      refuseUnless(bytesRead > 0, 'internal', () => 'result: an artifact changes while it is read')
      yield chunk.subarray(0, bytesRead)
      at += bytesRead
    }
  } finally {
    await file.close()
  }
}

function header(entry: { path: string; mode: number; sizeBytes: number; isDirectory: boolean }): Uint8Array {
  const { path, mode, sizeBytes, isDirectory } = entry
  refuseUnless(sizeBytes < ustarSizeBytesEnd, 'limit_exceeded', () => 'result: a file of 8 GiB or more')
  const place = ustarPath(path)
  if (place === null) {
    throw new BuildFailure('build_failed', `result: ${JSON.stringify(path.slice(0, 300))}: too long a path for a tar`)
  }
  const type = isDirectory ? '5' : '0'
  return encodeUstar({ ...place, type, mode, sizeBytes, mtimeSeconds: 0, linkName: '' })
}

/** Path and mode of an artifact in the archive. */
export function artifactEntry(artifact: {
  name: string
  path: string
  sizeBytes: number
  executable: boolean
}): ResultEntry {
  const { name, path, sizeBytes, executable } = artifact
  return { kind: 'artifact', path: artifactPath(name), file: path, sizeBytes, executable }
}
