// Whether a descriptor leads to systemd's journal. Effects: one fstat(2).

import { fstatSync } from 'node:fs'
import { resultOr } from '../base/result-or.ts'

export const stderrFd = 2

/** systemd.exec(5), JOURNAL_STREAM: device and inode of systemd's stream. A redirected descriptor differs. */
export function isJournal(fd: number, env: { readonly [name: string]: string | undefined }): boolean {
  const match = /^([0-9]+):([0-9]+)$/.exec(env.JOURNAL_STREAM ?? '')
  if (match === null) return false
  const found = resultOr(() => fstatSync(fd, { bigint: true }), null)
  return found !== null && String(found.dev) === match[1] && String(found.ino) === match[2]
}
