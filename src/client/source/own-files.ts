// The client's own files that a source should not contain: keys, and results of builds. Effects: reads files, runs git.

import { lstatSync, readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { isKeyText, keyTextCharsMax } from '../../contract/admin/key-registration.ts'
import { plainEnv } from '../../linux/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { resultsDirectory } from './source-files.ts'

/** Throws Fault invalid_request if one of the files is an API key, as written by `key new --key-file`. */
export function refuseKeys(directory: string, paths: readonly string[]): void {
  const key = paths.find(path => {
    const stat = lstatSync(join(directory, path), { throwIfNoEntry: false })
    const isSmall = stat?.isFile() === true && stat.size <= keyTextCharsMax
    return isSmall && isKeyText(readFileSync(join(directory, path), 'latin1'))
  })
  if (key === undefined) return
  throw new InputFault(`${oneLine(key)} is an API key, and the service would get it with the source`, {
    param: 'source',
    remedy: 'move it out of the project, or name it in .gitignore',
  })
}

/**
 * Reports whether later builds of the directory, and `verify build --source`, would treat the results as its source.
 */
export function takesResults(directory: string, output: string): boolean {
  const path = relative(resolve(directory), resolve(output))
  if (path.startsWith('../') || path === '..') return false
  if (path === '') return true
  const [top = ''] = path.split('/')
  if ([resultsDirectory, 'target', 'result'].includes(top)) return false
  const env = { ...plainEnv, PATH: process.env.PATH ?? plainEnv.PATH, HOME: process.env.HOME ?? '/' }
  if (Bun.which('git') === null) return true
  // Exit codes: 0 ignored, 1 not ignored, 128 no repository.
  return Bun.spawnSync(['git', '-C', directory, 'check-ignore', '--quiet', '--', path], { env }).exitCode !== 0
}
