// Whether a descriptor leads to systemd's journal. Effects: one fstat(2).

import { fstatSync } from 'node:fs'

export const stderrFd = 2

/** systemd.exec(5), JOURNAL_STREAM: device and inode of systemd's stream. A redirected descriptor differs. */
export function isJournal(fd: number, env: { readonly [name: string]: string | undefined }): boolean {
  const match = /^([0-9]+):([0-9]+)$/.exec(env.JOURNAL_STREAM ?? '')
  if (match === null) return false
  try {
    const { dev, ino } = fstatSync(fd, { bigint: true })
    return String(dev) === match[1] && String(ino) === match[2]
  } catch {
    return false
  }
}
