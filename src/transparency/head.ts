// The newest tree that this host has answered for, in a file beside the database: a database of before, from a backup
// or a copy, shows by it. Effects: that file. It is in no backup.

import { renameSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from '../attest/log/checkpoint.ts'
import { utf8 } from '../base/bytes.ts'
import { resultOr } from '../base/result-or.ts'
import { readTextOrNull, syncDirectory, writeFileAtomic } from '../linux/files.ts'

export type LogHead = Pick<Checkpoint, 'origin' | 'size' | 'root'>

export const logHeadFile = 'log-head.txt'

/** Null if there is none, or none that can be read. */
export function readLogHead(path: string): LogHead | null {
  const text = readTextOrNull(path)
  return text === null ? null : resultOr(() => decodeCheckpoint(text), null)
}

/** A head on its way into its file. */
export type StagedHead = {
  /** Durable when it returns. */
  readonly put: () => void
  readonly discard: () => void
}

/** Takes the room that the head needs, so that a full disk is met before anything is changed. */
export function stageLogHead(path: string, head: LogHead): StagedHead {
  const staged = `${path}.next`
  writeFileAtomic(staged, utf8(encodeCheckpoint({ ...head, extensions: [] })), { mode: 0o600 })
  return {
    put: () => {
      renameSync(staged, path)
      syncDirectory(dirname(path))
    },
    discard: () => rmSync(staged, { force: true }),
  }
}
