// Small files written whole. Effects: the file system.

import * as fs from 'node:fs'
import { wrapFault } from '../base/fault.ts'

export type Owner = { readonly uid: number; readonly gid: number }
export type FileAttributes = { readonly mode: number; readonly owner: Owner }

/** Readers see the old content or the new, never a part: written beside and renamed. Fault internal. */
export function writeWhole(path: string, content: string, { mode, owner }: FileAttributes): void {
  const beside = `${path}.new`
  try {
    fs.rmSync(beside, { force: true })
    const fd = fs.openSync(beside, 'wx', 0o600)
    try {
      fs.fchownSync(fd, owner.uid, owner.gid)
      fs.fchmodSync(fd, mode)
      fs.writeFileSync(fd, content)
    } finally {
      fs.closeSync(fd)
    }
    fs.renameSync(beside, path)
  } catch (error) {
    fs.rmSync(beside, { force: true })
    throw wrapFault(error, `write ${path}`)
  }
}

/** Makes the directory when it is missing, in a parent that is there. True: made now. Left as it was on failure. Fault internal. */
export function ensureDirectory(path: string, { mode, owner }: FileAttributes): boolean {
  try {
    fs.mkdirSync(path, mode)
  } catch (error) {
    if (Reflect.get(Object(error), 'code') === 'EEXIST') return false
    throw wrapFault(error, `make ${path}`)
  }
  try {
    fs.chownSync(path, owner.uid, owner.gid)
    fs.chmodSync(path, mode) // mkdir(2) subtracts the umask
    return true
  } catch (error) {
    fs.rmdirSync(path)
    throw wrapFault(error, `own ${path}`)
  }
}

/** The text, or null when there is no such file. Fault internal. */
export function readOrNull(path: string): string | null {
  try {
    return fs.readFileSync(path, 'utf8')
  } catch (error) {
    if (Reflect.get(Object(error), 'code') === 'ENOENT') return null
    throw wrapFault(error, `read ${path}`)
  }
}
