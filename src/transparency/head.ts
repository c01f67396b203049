// The newest tree that this host has answered for, in a file beside the database: a database of before, from a backup
// or a copy, shows by it. Effects: that file. It is in no backup.

import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from '../attest/log/checkpoint.ts'
import { utf8 } from '../base/bytes.ts'
import { resultOr } from '../base/result-or.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'

export type LogHead = Pick<Checkpoint, 'origin' | 'size' | 'root'>

export const logHeadFile = 'log-head.txt'

/** Null: there is none, or none that can be read. */
export function readLogHead(path: string): LogHead | null {
  const text = readTextOrNull(path)
  return text === null ? null : resultOr(() => decodeCheckpoint(text), null)
}

/** Durable when it returns. */
export function writeLogHead(path: string, head: LogHead): void {
  writeFileAtomic(path, utf8(encodeCheckpoint({ ...head, extensions: [] })), { mode: 0o600 })
}
