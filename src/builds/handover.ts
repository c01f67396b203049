// Handover of a build from the host that accepted it to the host that runs it: source and events are transferred once.
// Effects: files, requests to the other host.
//
// The first host stops writing events when the directory names the new owner, and transfers them only then, so the
// transferred log is complete.

import { createHash } from 'node:crypto'
import { constants as fsConstants } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { sha256 } from '../attest/hash.ts'
import { present } from '../base/assert.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import { canonicalJson, type Plain } from '../base/canonical-json.ts'
import { type Clock, pause } from '../base/clock.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import { removeFile } from '../linux/files/removal.ts'
import type { DirectoryStore } from '../store/db.ts'
import { buildById } from '../store/directory/build.query.ts'
import type { Build } from '../store/directory/build.table.ts'
import { toLine } from './events/line.codec.ts'
import { type BuildFiles, fileExists } from './files.ts'
import type { BuildPeers } from './fleet.ts'
import type { BuildsSettings } from './types.ts'

export type HandoverDeps = {
  readonly directory: Pick<DirectoryStore, 'read'>
  readonly hostId: string
  readonly peers: Pick<BuildPeers, 'ask'>
  readonly files: BuildFiles
  readonly clock: Clock
  readonly random: RandomBytes
  readonly settings: Pick<BuildsSettings, 'eventBytesMax'>
  /** Yields lines of a build's log as text. Fault not_found if the log was removed. */
  readonly logOf: (build: Build, options: { readonly follow: boolean; readonly signal: AbortSignal }) => LogText
}

type LogText = AsyncIterable<Uint8Array>

/** Timeout without a byte of a fetched file. */
const idleMs = 30_000
/** Gap in event ids after events were lost while the build was queued, so that no id is reused. */
const lostEventsStep = 1_000_000

/** Returns the host with the source and events of a build. */
export function sourceHostOf({ hostId, sourceHostId }: Pick<Build, 'hostId' | 'sourceHostId'>): string {
  return sourceHostId ?? hostId
}

/**
 * Returns the digest of those fields of a request that hosts of an earlier schema do not copy; '' if the request has
 * none. Such a host sends another digest, or none, and is rejected. It then returns the build, and cannot build it
 * without these fields.
 */
function requestDigest({ options, waivers }: Pick<Build, 'options' | 'waivers'>): string {
  const given = waivers ?? []
  if (options === null && given.length === 0) return ''
  return toHex(sha256(utf8(canonicalJson({ options, waivers: [...given] } as Plain))))
}

export class Handover {
  readonly #deps: HandoverDeps

  constructor(deps: HandoverDeps) {
    this.#deps = deps
  }

  /**
   * Fetches events and source from the host that accepted the build; a repeated call continues. Faults:
   * fleet.unavailable, internal (the source differs from the accepted one, or is missing).
   */
  async fetchSource(build: Build, signal: AbortSignal): Promise<void> {
    const { files } = this.#deps
    await files.adopt(build.id, null)
    await this.fetchEvents(build, signal)
    const { sourceBytes: sizeBytes, sourceSha256: sha256 } = build
    if (sizeBytes === null || sha256 === null || fileExists(files.path(build.id, 'source'))) return
    const copied = await this.#fetch(build, { file: 'source', bytesMax: sizeBytes, signal })
    if (copied === null || copied.sizeBytes !== sizeBytes || copied.sha256 !== sha256) {
      throw new Fault('internal', `the source of build ${build.id} is missing, or differs from the accepted one`)
    }
  }

  /**
   * Fetches the events that the other host wrote; without them the build's events start after them. Fault
   * fleet.unavailable.
   */
  async fetchEvents(build: Build, signal: AbortSignal): Promise<void> {
    const { files, settings } = this.#deps
    await files.adopt(build.id, null)
    if (fileExists(files.path(build.id, 'events'))) return
    const copied = await this.#fetch(build, { file: 'events', bytesMax: settings.eventBytesMax, signal })
    if (copied === null) await this.startEventsAfterLoss(build)
  }

  /** Starts the events of a build whose first events are lost. */
  async startEventsAfterLoss({ id, claims }: Pick<Build, 'id' | 'claims'>): Promise<void> {
    const { files, clock } = this.#deps
    await files.adopt(id, null)
    const path = files.path(id, 'events')
    if (fileExists(path)) return
    const msg = 'Another host took over this build; its earlier events are lost.'
    const line = toLine({
      id: Math.max(1, claims) * lostEventsStep,
      seq: null,
      atMs: clock.nowMs(),
      data: { type: 'host', msg },
    })
    const temporary = this.#temporary()
    await using file = await open(temporary, 'wx', 0o600)
    await file.writeFile(line)
    await file.sync()
    await rename(temporary, path)
  }

  /**
   * Handles a request of another host of the fleet: `/handover/ID/source`, `/handover/ID/events`, `/log/ID`. Never
   * rejects.
   */
  async answer(request: Request, from: string): Promise<Response> {
    const { directory, hostId, files } = this.#deps
    const { pathname, searchParams } = new URL(request.url, 'https://host.invalid')
    const [, kind, id = '', file] = /^\/(handover|log)\/([0-9a-f-]{36})(?:\/(source|events))?$/.exec(pathname) ?? []
    const build = await directory.read(null, db => buildById(db, id))
    if (build === null || request.method !== 'GET') return new Response(null, { status: 404 })
    if (kind === 'log' && file === undefined) {
      return build.hostId === hostId ? this.#log(build, searchParams.get('follow') === '1', request.signal) : away()
    }
    if (file === undefined) return new Response(null, { status: 404 })
    // This host's copy of the directory does not show the new owner yet, so this host may still write events.
    if (build.hostId === hostId || build.hostId !== from || sourceHostOf(build) !== hostId) return away()
    if ((searchParams.get('request') ?? '') !== requestDigest(build)) return away()
    const path = files.path(id, file === 'source' ? 'source' : 'events')
    return fileExists(path) ? new Response(Bun.file(path)) : new Response(null, { status: 404 })
  }

  /** Yields lines of the log of another host's build. Faults: fleet.unavailable, not_found. */
  async *logOfOther(
    { id, hostId }: Pick<Build, 'id' | 'hostId'>,
    { follow, signal }: { readonly follow: boolean; readonly signal: AbortSignal },
  ): LogText {
    const answer = await this.#deps.peers.ask(hostId, `/log/${id}${follow ? '?follow=1' : ''}`, signal)
    if (!answer.ok) throw new Fault('not_found', `the log of build ${id} is not there`)
    for await (const bytes of answer.body ?? []) yield bytes
  }

  async #log(build: Build, follow: boolean, signal: AbortSignal): Promise<Response> {
    const lines = this.#deps.logOf(build, { follow, signal })[Symbol.asyncIterator]()
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async controller => {
          const next = await lines.next()
          if (next.done === true) controller.close()
          else controller.enqueue(next.value)
        },
        cancel: async () => {
          await lines.return?.()
        },
      },
      { highWaterMark: 0 },
    )
    return new Response(body)
  }

  /** Fetches a file. Null if the other host does not have it. Fault fleet.unavailable. */
  async #fetch(build: Build, { file, bytesMax, signal }: FetchOptions): Promise<CopiedFile | null> {
    const { peers, files, clock } = this.#deps
    const idle = new AbortController()
    const ends = AbortSignal.any([signal, idle.signal])
    const digest = requestDigest(build)
    const query = digest === '' ? '' : `?request=${digest}`
    const answer = await peers.ask(sourceHostOf(build), `/handover/${build.id}/${file}${query}`, ends)
    if (answer.status === 404) return null
    if (answer.status !== 200) {
      await answer.body?.cancel()
      throw new Fault('fleet.unavailable', `the host that took build ${build.id} does not hand over its ${file} yet`)
    }
    const temporary = this.#temporary()
    try {
      const copied = await copyBody(answer, temporary, {
        bytesMax,
        next: read => withinIdle(read, { clock, idle, ms: idleMs }),
      })
      await rename(temporary, files.path(build.id, file))
      return copied
    } catch (error) {
      removeFile(temporary)
      throw wrapFault(error, `fetch the ${file} of build ${build.id}`, 'fleet.unavailable')
    }
  }

  #temporary(): string {
    return this.#deps.files.incomingPath(newUuid(this.#deps.random))
  }
}

type FetchOptions = { readonly file: 'source' | 'events'; readonly bytesMax: number; readonly signal: AbortSignal }
type CopiedFile = { readonly sizeBytes: number; readonly sha256: string }
type Piece = { readonly done: boolean; readonly value?: Uint8Array | undefined }

async function copyBody(
  answer: Response,
  path: string,
  { bytesMax, next }: { readonly bytesMax: number; readonly next: (read: Promise<Piece>) => Promise<Piece> },
): Promise<CopiedFile> {
  const reader = present(answer.body, 'status 200 has a body').getReader()
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fsConstants
  await using file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
  const hash = createHash('sha256')
  let sizeBytes = 0
  try {
    for (;;) {
      const { done, value } = await next(reader.read())
      if (done || value === undefined) break
      sizeBytes += value.length
      if (sizeBytes > bytesMax) throw new Error(`it is larger than ${bytesMax} bytes`)
      hash.update(value)
      for (let at = 0; at < value.length; ) at += (await file.write(value, at, value.length - at)).bytesWritten
    }
  } catch (error) {
    void reader.cancel().catch(() => {})
    throw error
  }
  await file.sync()
  return { sizeBytes, sha256: hash.digest('hex') }
}

async function withinIdle(
  read: Promise<Piece>,
  { clock, idle, ms }: { readonly clock: Clock; readonly idle: AbortController; readonly ms: number },
): Promise<Piece> {
  const waiting = new AbortController()
  const late = pause(clock, ms, waiting.signal).then((): Piece => {
    if (waiting.signal.aborted) return { done: true }
    idle.abort()
    throw new Error(`nothing came for ${ms} ms`)
  })
  try {
    return await Promise.race([read, late])
  } finally {
    waiting.abort()
    late.catch(() => {})
  }
}

/** Makes the other host retry: this copy of the directory is behind, or the build belongs to another host by now. */
function away(): Response {
  return new Response(null, { status: 503, headers: { 'Retry-After': '1' } })
}
