// The source files of a directory: those that git would take, without build output. Effects: reads files, runs git.

import { existsSync, lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../../base/fault.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { InputFault } from '../exit.ts'

export type SourceFiles = {
  /** Relative to the directory, sorted by their bytes; files and symbolic links. */
  readonly paths: readonly string[]
  /** Remarks on files that were left out, most important first. */
  readonly leftOut: readonly string[]
}

const outputBytesMax = 64 * 1024 * 1024
const timeoutMs = 60_000
const filesMax = 200_000
/** At the top, whoever made them: outputs of cargo and nix. */
const OUTPUTS = ['target', 'result']

/** Faults: invalid_request: there are no files, or too many. */
export async function listSource(directory: string): Promise<SourceFiles> {
  const found = (await listByGit(directory)) ?? {
    paths: walk(directory),
    remark: '.gitignore is not read: git is not installed',
  }
  const isOutput = (path: string) => OUTPUTS.includes(path.split('/', 1)[0] ?? '')
  const paths = found.paths.filter(
    path => !path.split('/').includes('.git') && !isOutput(path) && isSource(join(directory, path)),
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
  const outputs = OUTPUTS.filter(name => existsSync(join(directory, name)))
  const leftOut = ['.git', ...outputs].filter(name => existsSync(join(directory, name)))
  const sorted = [...new Set(paths)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  return { paths: sorted, leftOut: [...leftOut, found.remark] }
}

type Listed = { readonly paths: readonly string[]; readonly remark: string }

/** Null without git. Outside a work tree an empty repository lists the files, so that .gitignore counts. */
async function listByGit(directory: string): Promise<Listed | null> {
  const flags = ['--cached', '--others', '--exclude-standard', '-z', '--', '.']
  const remark = 'what .gitignore names'
  if (Bun.which('git') === null) return null
  const own = await git(['-C', directory, '-c', 'core.fsmonitor=false', 'ls-files', ...flags]).catch(() => null)
  if (own !== null) return { paths: own, remark }
  const repository = mkdtempSync(join(tmpdir(), 'strongroom-git-'))
  try {
    await git(['init', '--quiet', '--bare', repository])
    const at = ['--git-dir', repository, '--work-tree', directory, '-C', directory]
    return { paths: await git([...at, 'ls-files', ...flags]), remark }
  } catch (error) {
    throw new InputFault(`git cannot list ${directory}: ${messageOf(error)}`, {
      param: 'source',
      remedy: 'see what git says',
    })
  } finally {
    rmSync(repository, { recursive: true, force: true })
  }
}

async function git(args: readonly string[]): Promise<string[]> {
  const env = { ...plainEnv, PATH: process.env.PATH ?? plainEnv.PATH, HOME: process.env.HOME ?? '/' }
  const { stdout } = await run(['git', ...args], { timeoutMs, outputBytesMax, env })
  return stdout.split('\0').filter(path => path !== '')
}

function walk(directory: string): string[] {
  const paths: string[] = []
  const pending = ['']
  for (let at = pending.pop(); at !== undefined && paths.length <= filesMax; at = pending.pop()) {
    for (const entry of readdirSync(join(directory, at), { withFileTypes: true })) {
      const path = at === '' ? entry.name : `${at}/${entry.name}`
      if (entry.isDirectory()) pending.push(path)
      else paths.push(path)
    }
  }
  return paths
}

/** False for deleted files that git still lists, for sockets and the like, and for submodules (directories). */
function isSource(path: string): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false })
  return stat !== undefined && (stat.isFile() || stat.isSymbolicLink())
}
