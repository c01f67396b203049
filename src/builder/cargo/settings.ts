// Files of settings that cargo would read in a source. Effects: reads the source.

import * as fs from 'node:fs'
import { systemErrorCode } from '../../base/fault.ts'

/** Reports whether the project's directory, or one above it in the source, has settings of cargo in any form. */
export function hasCargoSettings(sourceDir: string, dir: string): boolean {
  const root = fs.realpathSync(sourceDir)
  // Cargo starts where links lead to.
  const below = fs.realpathSync(`${root}/${dir}`).slice(root.length).split('/').filter(Boolean)
  for (let depth = below.length; depth >= 0; depth -= 1) {
    const at = [root, ...below.slice(0, depth)].join('/')
    if (['config', 'config.toml'].some(name => isThere(`${at}/.cargo/${name}`))) return true
  }
  return false
}

/** A file that cannot be read may be one. */
function isThere(path: string): boolean {
  try {
    fs.lstatSync(path)
    return true
  } catch (error) {
    return systemErrorCode(error) !== 'ENOENT' && systemErrorCode(error) !== 'ENOTDIR'
  }
}
