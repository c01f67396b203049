// Logs of the guest for root only, because the host reads the serial console. Effects: files below
// /run/strongroom/log.

import * as fs from 'node:fs'
import { ensureDir, type Owner } from '../linux/files.ts'

/** Limit of a file; a full file replaces the previous one. */
export const logBytesMax = 256 * 1024

type LogFile = { readonly write: (line: string) => void }

/** Appends lines to `dir`/`name`.log. A log that cannot be written must not stop the agent. */
export function openLogFile(dir: string, name: string, owner: Owner): LogFile {
  const path = `${dir}/${name}.log`
  let fd: number | null = null
  let sizeBytes = 0
  const open = () => {
    fd = openForAppend(path)
    sizeBytes = fs.fstatSync(fd).size
  }
  return {
    write: line => {
      try {
        if (fd === null) {
          ensureDir(dir, { mode: 0o700, owner })
          open()
        }
        const bytes = Buffer.from(`${line}\n`)
        if (sizeBytes + bytes.length > logBytesMax && fd !== null) {
          fs.closeSync(fd)
          fd = null
          fs.renameSync(path, `${path}.1`)
          open()
        }
        if (fd !== null) sizeBytes += fs.writeSync(fd, bytes)
      } catch {
        // A failed write cannot be reported anywhere else.
      }
    },
  }
}

/** The caller closes it. */
export function openForAppend(path: string): number {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = fs.constants
  return fs.openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600)
}
