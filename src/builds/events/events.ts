// Events of builds: one append-only, bounded log file per build, and readers that follow it at their own pace.
// Effects: files.
//
// A reader holds an offset and a small buffer, so a slow reader costs nothing and a returning one loses nothing.

import {
  closeSync,
  constants as fsConstants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  writeSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'
import type { BuildEvent } from '../../contract/http/build.ts'
import { StageTimes } from '../../contract/http/build-stages.ts'
import { guardedFlags } from '../../linux/files/regular.ts'
import type { BuildsSettings } from '../types.ts'
import { headBytesMax, type ReadLine, readHead, readLine, toLine } from './line.codec.ts'

/** Reserved for the last events, regardless of earlier output. */
const endBytes = 65_536

export type NewEvent = { readonly data: BuildEvent; readonly seq: number | null }

/** The log of an unfinished build. One writer. */
export class EventLog {
  readonly path: string
  readonly #fd: number
  readonly #bytesMax: number
  readonly #nowMs: () => number
  readonly #waiting = new Set<() => void>()
  #sizeBytes: number
  #lastId = 0
  #nextSeq = 0
  /** Number of the guest's first line that did not fit; null if all fitted. */
  #cutAt: number | null = null
  #isComplete = false
  readonly #stages = new StageTimes()

  /** Opens or creates the log. Removes a last line that a crash truncated. Fault internal. */
  constructor(path: string, { bytesMax, nowMs }: { readonly bytesMax: number; readonly nowMs: () => number }) {
    this.path = path
    this.#bytesMax = bytesMax
    this.#nowMs = nowMs
    const { O_RDWR, O_CREAT } = fsConstants
    try {
      this.#fd = openSync(path, O_RDWR | O_CREAT | guardedFlags, 0o600)
    } catch (error) {
      throw wrapFault(error, `open ${path}`)
    }
    this.#sizeBytes = this.#recover()
  }

  /** The number of the guest's next line. */
  get nextSeq(): number {
    return this.#nextSeq
  }

  get isComplete(): boolean {
    return this.#isComplete
  }

  /**
   * Appends events; nothing after `complete`. Drops events beyond the limit, and reports that with one event. Fault
   * internal.
   */
  append(events: readonly NewEvent[]): void {
    if (this.#isComplete) return
    let text = ''
    let sizeBytes = this.#sizeBytes
    const atMs = this.#nowMs()
    const add = (event: NewEvent): boolean => {
      const line = toLine({ id: this.#lastId + 1, seq: event.seq, atMs, data: event.data })
      const lineBytes = Buffer.byteLength(line)
      const isLast = event.data.type === 'complete' || event.data.type === 'host'
      if (!isLast && sizeBytes + lineBytes > this.#bytesMax - endBytes) return false
      this.#lastId += 1
      text += line
      sizeBytes += lineBytes
      return true
    }
    for (const { data } of events) this.#stages.note(data.type, atMs)
    const stages = events.at(-1)?.data.type === 'complete' ? this.#stages.text() : null
    // Add this before the service's closing commands, of which the last verifies the result.
    if (stages !== null) add(hostEvent(stages))
    for (const event of events) {
      if (event.data.type === 'complete') {
        if (this.#cutAt !== null && this.#nextSeq > this.#cutAt) {
          add(
            hostEvent(
              `${this.#nextSeq - this.#cutAt} lines are missing from these events; build.log in the result has them.`,
            ),
          )
        }
        this.#isComplete = true
      }
      if (event.seq !== null) this.#nextSeq = event.seq + 1
      const isLeftOut = event.seq !== null && this.#cutAt !== null
      if (isLeftOut || add(event)) continue
      if (this.#cutAt === null) {
        this.#cutAt = event.seq ?? this.#nextSeq
        add({ data: { type: 'host', msg: cutText }, seq: event.seq })
      }
    }
    this.#write(text)
    if (this.#isComplete) fsyncSync(this.#fd)
    this.#wake()
  }

  /** Resolves when there are new events, or after `ms`. */
  changed(ms: number): Promise<void> {
    return new Promise(resolve => {
      const done = () => {
        clearTimeout(timer)
        this.#waiting.delete(done)
        resolve()
      }
      const timer = setTimeout(done, ms)
      this.#waiting.add(done)
    })
  }

  close(): void {
    closeSync(this.#fd)
    this.#wake()
  }

  #wake(): void {
    for (const done of [...this.#waiting]) done()
  }

  #write(text: string): void {
    const bytes = Buffer.from(text)
    try {
      for (let at = 0; at < bytes.length; )
        at += writeSync(this.#fd, bytes, at, bytes.length - at, this.#sizeBytes + at)
    } catch (error) {
      throw wrapFault(error, `write ${this.path}`)
    }
    this.#sizeBytes += bytes.length
  }

  /** Returns the offset at which the log continues. */
  #recover(): number {
    const stat = fstatSync(this.#fd)
    if (!stat.isFile()) throw new Fault('internal', `${this.path} is not a regular file`)
    const bytes = Buffer.alloc(stat.size)
    for (let at = 0; at < bytes.length; ) {
      const count = readSync(this.#fd, bytes, at, bytes.length - at, at)
      if (count === 0) break
      at += count
    }
    const endBytes = bytes.lastIndexOf(0x0a) + 1
    let id = 0
    let seq: number | null = null
    for (let end = endBytes; end > 0 && (id === 0 || seq === null); ) {
      const begin = end < 2 ? 0 : bytes.lastIndexOf(0x0a, end - 2) + 1
      const line = readLine(bytes.subarray(begin, end - 1).toString('utf8'))
      if (line === null) throw new Fault('internal', `${this.path} holds a line in an unknown format`)
      if (id === 0) {
        id = line.id
        this.#isComplete = line.type === 'complete'
      }
      seq ??= line.seq
      if (line.seq !== null && line.type === 'host') this.#cutAt = line.seq
      end = begin
    }
    this.#recoverStages(bytes, endBytes)
    this.#lastId = id
    this.#nextSeq = seq === null ? 0 : seq + 1
    if (endBytes < stat.size) ftruncateSync(this.#fd, endBytes)
    return endBytes
  }

  /** Restores stage times from events that an earlier process, or another host, wrote. */
  #recoverStages(bytes: Buffer, end: number): void {
    for (let begin = 0; begin < end; begin = bytes.indexOf(0x0a, begin) + 1) {
      const head = readHead(bytes.subarray(begin, begin + headBytesMax).toString('latin1'))
      if (head !== null) this.#stages.note(head.type, head.atMs)
    }
  }
}

const cutText = 'These events have reached their limit: further lines of the build are left out. The build continues.'

export function hostEvent(msg: string): NewEvent {
  return { data: { type: 'host', msg: msg.slice(0, msgCharsMax) }, seq: null }
}

const msgCharsMax = 4096
const chunkBytes = 65_536

/** Reads a log from its beginning; `log` is null if the build has ended. */
export class EventReader {
  readonly #path: string
  readonly #live: () => EventLog | null
  readonly #afterId: number
  #offset = 0
  #rest: Buffer = Buffer.alloc(0)
  #isDone = false

  constructor(path: string, { live, afterId }: { readonly live: () => EventLog | null; readonly afterId: number }) {
    this.#path = path
    this.#live = live
    this.#afterId = afterId
  }

  /**
   * Returns the next events, or an empty list after `waitMs`; null after the last one. Fault not_found if the log was
   * removed.
   */
  async next(waitMs: number): Promise<readonly ReadLine[] | null> {
    if (this.#isDone) return null
    let mayWait = waitMs > 0
    for (;;) {
      // Read before the file, so that a later write wakes this reader.
      const log = this.#live()
      const change = log === null || !mayWait ? null : log.changed(waitMs)
      const { lines, isAtEnd } = await this.#read()
      if (lines.length > 0) return lines
      if (!isAtEnd) continue
      // The last line is not `complete`: the build ended while no process could write it.
      if (log === null) return this.#end()
      if (change === null) return []
      await change
      mayWait = false
    }
  }

  #end(): null {
    this.#isDone = true
    return null
  }

  async #read(): Promise<{ lines: ReadLine[]; isAtEnd: boolean }> {
    const chunk = await readChunk(this.#path, this.#offset)
    this.#offset += chunk.length
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    const end = bytes.lastIndexOf(0x0a) + 1
    this.#rest = bytes.subarray(end)
    const lines: ReadLine[] = []
    for (const text of end === 0
      ? []
      : bytes
          .subarray(0, end - 1)
          .toString('utf8')
          .split('\n')) {
      const line = readLine(text)
      if (line === null) throw new Fault('internal', `${this.#path} holds a line in an unknown format`)
      if (line.id > this.#afterId) lines.push(line)
      if (line.type === 'complete') this.#isDone = true
    }
    return { lines, isAtEnd: chunk.length < chunkBytes }
  }
}

/** Opens the file for each chunk, so that a waiting reader holds no descriptor. */
async function readChunk(path: string, offset: number): Promise<Buffer> {
  let file: Awaited<ReturnType<typeof open>>
  try {
    file = await open(path, fsConstants.O_RDONLY | guardedFlags)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') throw new Fault('not_found', 'The events of this build were removed.')
    throw wrapFault(error, `open ${path}`)
  }
  try {
    const buffer = Buffer.alloc(chunkBytes)
    const { bytesRead } = await file.read(buffer, 0, chunkBytes, offset)
    return buffer.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}

type EventLogsOptions = {
  readonly settings: Pick<BuildsSettings, 'eventBytesMax'>
  readonly nowMs: () => number
}

/** The logs of unfinished builds, each opened once. */
export class EventLogs {
  readonly #open = new Map<string, EventLog>()
  readonly #pathOf: (buildId: string) => string
  readonly #options: { readonly bytesMax: number; readonly nowMs: () => number }

  constructor(pathOf: (buildId: string) => string, { settings, nowMs }: EventLogsOptions) {
    this.#pathOf = pathOf
    this.#options = { bytesMax: settings.eventBytesMax, nowMs }
  }

  /** Returns the log for its writer. */
  open(buildId: string): EventLog {
    const known = this.#open.get(buildId)
    if (known !== undefined) return known
    const log = new EventLog(this.#pathOf(buildId), this.#options)
    this.#open.set(buildId, log)
    return log
  }

  /** Returns a reader of a build's events. `isOpen`: whether the store lists the build as unfinished. */
  reader(buildId: string, { afterId, isOpen }: { readonly afterId: number; readonly isOpen: boolean }): EventReader {
    if (isOpen) this.open(buildId)
    return new EventReader(this.#pathOf(buildId), { live: () => this.#open.get(buildId) ?? null, afterId })
  }

  /** Call it after the last event. No effect if the log is not open. */
  close(buildId: string): void {
    const log = this.#open.get(buildId)
    if (log === undefined) return
    this.#open.delete(buildId)
    log.close()
  }

  closeAll(): void {
    for (const buildId of [...this.#open.keys()]) this.close(buildId)
  }
}
