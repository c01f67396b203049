// The result as a tar.gz that depends only on the files: one top-level directory, entries sorted as bytes, one time,
// owner 0 (POSIX.1-2017 pax(1), "ustar Interchange Format"). Effects: reads the artifacts.

import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { artifactPath, isComponent } from '../attest/provenance/paths.ts'
import { type NewUstarHeader, type TarEntry, ustarPath, ustarSizeBytesEnd, writeTar } from '../base/ustar.codec.ts'
import { openRegular } from './collect.ts'
import { BuildFailure, refuseUnless } from './failure.ts'

type ResultEntry = { readonly path: string } & (
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'artifact'; readonly file: string; readonly sizeBytes: number; readonly executable: boolean }
)

const chunkBytes = 1024 * 1024
/** GNU tar and pax pad archives to a multiple of this. */
const recordBytes = 10_240

/** Yields the gzip of the tar in chunks. Failure `build_failed` for a path that ustar cannot store. */
export async function* resultArchive(project: string, entries: readonly ResultEntry[]): AsyncGenerator<Uint8Array> {
  refuseUnless(isComponent(project), 'internal', () => 'result: the project name is not plain')
  // Level 6 explicitly, so that the same files produce the same bytes. The header has no time and no name.
  const gzip = createGzip({ level: 6 })
  const fed = pipeline(writeTar(tarEntries(project, entries), recordBytes), gzip)
  fed.catch(() => {})
  yield* gzip
  await fed
}

function* tarEntries(project: string, entries: readonly ResultEntry[]): Generator<TarEntry> {
  const sorted = withDirectories(project, entries).sort((a, b) =>
    Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)),
  )
  for (const entry of sorted) {
    const { kind, path } = entry
    const sizeBytes = kind === 'directory' ? 0 : kind === 'bytes' ? entry.bytes.length : entry.sizeBytes
    const mode = kind === 'directory' || (kind === 'artifact' && entry.executable) ? 0o755 : 0o644
    const content = kind === 'bytes' ? [entry.bytes] : kind === 'artifact' ? contentOf(entry.file, sizeBytes) : []
    yield { header: header({ path, type: kind === 'directory' ? '5' : '0', mode, sizeBytes }), content }
  }
}

type PathEntry = ResultEntry | { readonly kind: 'directory'; readonly path: string }

function withDirectories(project: string, entries: readonly ResultEntry[]): PathEntry[] {
  const directories = new Set([`${project}/`])
  for (const { path } of entries) {
    const components = path.split('/')
    for (let depth = 1; depth < components.length; depth += 1)
      directories.add(`${[project, ...components.slice(0, depth)].join('/')}/`)
  }
  return [
    ...[...directories].map((path): PathEntry => ({ kind: 'directory', path })),
    ...entries.map(entry => ({ ...entry, path: `${project}/${entry.path}` })),
  ]
}

async function* contentOf(path: string, sizeBytes: number): AsyncGenerator<Uint8Array> {
  await using file = await openRegular(path, JSON.stringify(path.slice(-200)))
  for (let at = 0; at < sizeBytes; ) {
    // Allocate a new chunk each time: gzip may still use the previous one.
    const chunk = new Uint8Array(Math.min(chunkBytes, sizeBytes - at))
    const { bytesRead } = await file.read(chunk, 0, chunk.length, at)
    refuseUnless(bytesRead > 0, 'internal', () => 'result: an artifact changed while it was read')
    yield chunk.subarray(0, bytesRead)
    at += bytesRead
  }
}

type Fields = Pick<NewUstarHeader, 'type' | 'mode' | 'sizeBytes'> & { readonly path: string }

function header({ path, ...fields }: Fields): NewUstarHeader {
  refuseUnless(fields.sizeBytes < ustarSizeBytesEnd, 'limit_exceeded', () => 'result: a file of 8 GiB or more')
  const place = ustarPath(path)
  if (place === null) {
    throw new BuildFailure('build_failed', `result: ${JSON.stringify(path.slice(0, 300))}: path too long for tar`)
  }
  return { ...place, ...fields, mtimeSeconds: 0, linkName: '' }
}

/** Returns path and mode of an artifact in the archive. */
export function artifactEntry(artifact: {
  name: string
  path: string
  sizeBytes: number
  executable: boolean
}): ResultEntry {
  const { name, path, sizeBytes, executable } = artifact
  return { kind: 'artifact', path: artifactPath(name), file: path, sizeBytes, executable }
}
