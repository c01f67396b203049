// Detects settings files that cargo would read in a source. Effects: reads the source.

import * as fs from 'node:fs'

/**
 * Reports whether the project's directory, or one above it in the source, may contain cargo settings of any form. A
 * link may resolve differently in the sandbox, so a link on the way to the settings counts as settings.
 */
export function hasCargoSettings(sourceDir: string, dir: string): boolean {
  const root = fs.realpathSync(sourceDir)
  // Cargo starts from the resolved path.
  const project = realPathOf(`${root}/${dir}`)
  if (project === null || !`${project}/`.startsWith(`${root}/`)) return true
  const below = project.slice(root.length).split('/').filter(Boolean)
  for (let depth = below.length; depth >= 0; depth -= 1) {
    const folder = [root, ...below.slice(0, depth), '.cargo'].join('/')
    const isFolder = fs.lstatSync(folder, { throwIfNoEntry: false })?.isDirectory()
    if (isFolder === undefined) continue
    if (!isFolder) return true
    if (['config', 'config.toml'].some(name => isThere(`${folder}/${name}`))) return true
  }
  return false
}

/** Resolves a path; null if it does not exist here. */
function realPathOf(path: string): string | null {
  try {
    return fs.realpathSync(path)
  } catch {
    return null
  }
}

/** Reports whether there is an entry, possibly a link that does not resolve here. */
function isThere(path: string): boolean {
  return fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined
}
