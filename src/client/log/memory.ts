// Stores the last checkpoint that this user saw of each log, so that the next visit detects a fork. Effects: files
// below ~/.config/strongroom/logs, or in a given directory.

import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../../attest/hash.ts'
import { decodeCheckpoint } from '../../attest/log/checkpoint.ts'
import { decodeNote, encodeNote, encodeNoteKey, type Note, type NoteKey } from '../../attest/log/note.ts'
import { parsed } from '../../attest/malformed.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { InputFault } from '../../terminal/exit.ts'
import type { Io } from '../../terminal/io.ts'
import { clientDirectory } from '../client-config.ts'
import type { ReadNote } from './remote.ts'

/** Files of evidence stored per log. */
const forksMax = 16
const idBytes = 16

/** Returns the memory; null if nothing is stored, because there is no home directory. */
export function logMemory(env: Io['env'], given: string | undefined): LogMemory | null {
  const base = clientDirectory(env)
  const directory = given ?? (base === null ? null : join(base, 'logs'))
  return directory === null ? null : new LogMemory(directory)
}

export class LogMemory {
  readonly directory: string

  constructor(directory: string) {
    this.directory = directory
  }

  /** Returns the last checkpoint; null at the first visit. Throws Fault invalid_request if the file is damaged. */
  last(key: NoteKey): ReadNote | null {
    const path = this.fileOf(key, 'checkpoint')
    const text = readTextOrNull(path)
    if (text === null) return null
    const read = parsed(() => {
      const note = decodeNote(utf8(text))
      return { note, checkpoint: decodeCheckpoint(note.text) }
    })
    if (read.ok && read.value.checkpoint.origin === key.name) return read.value
    throw new InputFault(`${path}: ${read.ok ? 'a checkpoint of another log' : read.reason}`, {
      remedy: 'restore the file; removed, the next visit is as the first and sees no fork',
    })
  }

  /** Keeps the larger of two trees, because another command may have stored a newer one in the meantime. */
  keep(key: NoteKey, note: Note): void {
    const seen = this.last(key)?.checkpoint.size ?? -1
    if (decodeCheckpoint(note.text).size <= seen) return
    ensureDir(this.directory, { mode: 0o700 })
    writeFileAtomic(this.fileOf(key, 'checkpoint'), encodeNote(note), { mode: 0o600 })
  }

  /** Stores both signed checkpoints of a fork, which prove it to anyone. Returns the file's path. */
  keepFork(key: NoteKey, { earlier, later }: { readonly earlier: Note; readonly later: Note }): string {
    const notes = { earlier: encodeNote(earlier), later: encodeNote(later) }
    const text = `${JSON.stringify(notes, null, 2)}\n`
    const path = this.fileOf(key, `fork-${toHex(sha256(utf8(text)).slice(0, idBytes / 2))}`)
    ensureDir(this.directory, { mode: 0o700 })
    const kept = readdirSync(this.directory).filter(name => name.startsWith(`${idOf(key)}.fork-`))
    if (existsSync(path)) return path
    if (kept.length >= forksMax) return join(this.directory, kept[0] ?? '')
    writeFileAtomic(path, text, { mode: 0o600 })
    return path
  }

  fileOf(key: NoteKey, what: string): string {
    return join(this.directory, `${idOf(key)}.${what}`)
  }
}

function idOf(key: NoteKey): string {
  return toHex(sha256(utf8(encodeNoteKey(key))).slice(0, idBytes))
}
