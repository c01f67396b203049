// Lists the source files of a directory: those that git would add, without build output. Effects: reads files, runs
// git.

import { existsSync, lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, normalize } from 'node:path'
import { messageOf } from '../../base/fault.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'

export type SourceFiles = {
  /** Files and symbolic links, relative to the directory and sorted by their bytes. */
  readonly paths: readonly string[]
  /** Remarks on files that were left out, most important first. */
  readonly leftOut: readonly string[]
}

const outputBytesMax = 64 * 1024 * 1024
const timeoutMs = 60_000
const filesMax = 200_000
/** Limit on nested submodules. */
const depthMax = 8
/** Default directory for the results of `build submit`. */
export const resultsDirectory = 'strongroom-out'
/** Outputs of cargo, nix and `build submit`, at the top of a source. */
const OUTPUTS = ['target', 'result', resultsDirectory]

/**
 * Lists the files that git would add, files of initialised submodules, and the ignored files and directories of
 * `include`. Throws Fault invalid_request if there are no files or too many, or a path of `include` is not below the
 * directory.
 */
export async function listSource(directory: string, include: readonly string[] = []): Promise<SourceFiles> {
  const found = (await listByGit(directory)) ?? {
    paths: walk(directory, ''),
    remark: '.gitignore is not read: git is not installed',
  }
  const isOutput = (path: string) => OUTPUTS.includes(path.split('/', 1)[0] ?? '')
  const listed = found.paths.filter(path => !isOutput(path))
  const paths = [...listed, ...include.flatMap(path => includedFiles(directory, path))].filter(
    path => !path.split('/').includes('.git') && isSource(join(directory, path)),
  )
  if (paths.length === 0) {
    throw new InputFault(`${directory}: there are no files to build`, {
      param: 'source',
      remedy: 'name the directory of a project',
    })
  }
  if (paths.length > filesMax) {
    throw new InputFault(`${directory}: more than ${filesMax} files`, {
      param: 'source',
      remedy: 'name the directory of one project',
    })
  }
  const leftOut = ['.git', ...OUTPUTS].filter(name => existsSync(join(directory, name)))
  const sorted = [...new Set(paths)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  return { paths: sorted, leftOut: [...leftOut, found.remark] }
}

/** Returns the files of one --include. Fault invalid_request. */
function includedFiles(directory: string, named: string): string[] {
  const path = normalize(named).replace(/\/$/, '')
  const isBelow = !/^(?:\/|\.\.(?:\/|$)|\.$)/.test(path) && !path.split('/').includes('.git')
  const stat = isBelow ? lstatSync(join(directory, path), { throwIfNoEntry: false }) : undefined
  if (stat === undefined) {
    throw new InputFault(`--include ${oneLine(named)}: ${directory} has no such file or directory below it`, {
      param: 'include',
      remedy: 'name a path relative to the source, such as Cargo.lock or vendor',
    })
  }
  return stat.isDirectory() ? walk(directory, path) : [path]
}

type SourceList = { readonly paths: readonly string[]; readonly remark: string }

/**
 * Lists files with git; null without git. Outside of a work tree, an empty repository lists them, so that .gitignore
 * applies.
 */
async function listByGit(directory: string, depth = 0): Promise<SourceList | null> {
  const flags = ['--cached', '--others', '--exclude-standard', '-z', '--', '.']
  const remark = 'what .gitignore names'
  if (Bun.which('git') === null) return null
  const own = await git(['-C', directory, '-c', 'core.fsmonitor=false', 'ls-files', ...flags]).catch(() => null)
  if (own !== null) return { paths: await withSubmodules(directory, own, depth), remark }
  const repository = mkdtempSync(join(tmpdir(), 'strongroom-git-'))
  try {
    await git(['init', '--quiet', '--bare', repository])
    const at = ['--git-dir', repository, '--work-tree', directory, '-C', directory]
    const paths = await git([...at, 'ls-files', ...flags])
    return { paths: await withSubmodules(directory, paths, depth), remark }
  } catch (error) {
    throw new InputFault(`git cannot list ${directory}: ${messageOf(error)}`, {
      param: 'source',
      remedy: 'run git in the directory and correct the error',
    })
  } finally {
    rmSync(repository, { recursive: true, force: true })
  }
}

/** Replaces each nested repository by its files, because git lists it as one entry. */
async function withSubmodules(directory: string, listed: readonly string[], depth: number): Promise<string[]> {
  const paths: string[] = []
  for (const path of listed) {
    const inner = path.replace(/\/$/, '')
    const isRepository =
      depth < depthMax &&
      existsSync(join(directory, inner, '.git')) &&
      !lstatSync(join(directory, inner)).isSymbolicLink()
    const files = isRepository ? await listByGit(join(directory, inner), depth + 1) : null
    if (files === null) paths.push(path)
    else for (const file of files.paths) paths.push(`${inner}/${file}`)
  }
  return paths
}

async function git(args: readonly string[]): Promise<string[]> {
  const env = { ...plainEnv, PATH: process.env.PATH ?? plainEnv.PATH, HOME: process.env.HOME ?? '/' }
  const { stdout } = await run(['git', ...args], { timeoutMs, outputBytesMax, env })
  return stdout.split('\0').filter(path => path !== '')
}

/** Returns the files below `top`, relative to the directory. */
function walk(directory: string, top: string): string[] {
  const paths: string[] = []
  const pending = [top]
  for (let at = pending.pop(); at !== undefined && paths.length <= filesMax; at = pending.pop()) {
    for (const entry of readdirSync(join(directory, at), { withFileTypes: true })) {
      const path = at === '' ? entry.name : `${at}/${entry.name}`
      if (entry.isDirectory()) pending.push(path)
      else paths.push(path)
    }
  }
  return paths
}

/** Returns false for deleted files that git still lists, for sockets and the like, and for submodules without files. */
function isSource(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false })
  return stat !== undefined && (stat.isFile() || stat.isSymbolicLink())
}
