// Determines which project of a source is built, and with which toolchain. Effects: reads a source that does not change
// meanwhile.

import * as fs from 'node:fs'
import { sha256 } from '../attest/hash.ts'
import { isComponent } from '../attest/provenance/paths.ts'
import { toHex } from '../base/bytes.ts'
import type { Toolchain as ToolchainName } from '../contract/http/build-options.ts'
import { toolchainOfOptions } from '../contract/http/option-words.ts'
import { readName, showName } from '../linux/source/tree.plan.ts'
import { BuildFailure, refuseUnless } from './failure.ts'
import type { LockFile, Project, ProjectRequest, Toolchain, ToolchainFiles } from './toolchain.ts'

export const lockBytesMax = 16 * 1024 * 1024

type Toolchains = Readonly<Record<ToolchainName, Toolchain>>

/** Finds the project. Failures: `source_invalid` (directory), `toolchain_undetected`. */
export async function findProject(root: string, request: ProjectRequest, toolchains: Toolchains): Promise<Project> {
  const dir = projectDir(root, request.projectDir)
  const at = dir === '' ? root : `${root}/${dir}`
  const has = (name: string) => fs.lstatSync(`${at}/${name}`, { throwIfNoEntry: false })?.isFile() === true
  const { toolchain, judgement } = await toolchainOf(request, { root, at, has, toolchains })
  const { manifest, describe } = toolchains[toolchain]
  const described = describe(await readBounded(`${at}/${manifest}`, manifest))
  const fallback = isComponent(request.sourceName) ? request.sourceName : 'source'
  return {
    dir,
    toolchain,
    name: described !== null && isComponent(described.name) ? described.name : fallback,
    version: described?.version ?? null,
    judgement,
  }
}

/**
 * Reads the lock at this path of the source. Failures: `lock_missing`; `source_invalid` if it is too large or not text.
 */
export async function readLock(root: string, files: ToolchainFiles, path: string): Promise<LockFile> {
  const { manifest, lock, makeLock } = files
  const dir = path.slice(0, Math.max(path.lastIndexOf('/'), 0))
  const parent = directoryIn(root, dir)
  refuseUnless(
    parent === dir && fs.lstatSync(`${root}/${path}`, { throwIfNoEntry: false })?.isFile() === true,
    'lock_missing',
    () =>
      `source: ${manifest} without ${lock}${dir === '' ? '' : ` in ${showName(dir)}`}; run \`${makeLock}\` and send ${lock} with the source`,
  )
  const text = await readBounded(`${root}/${path}`, lock)
  return { path, text, sha256: toHex(sha256(new TextEncoder().encode(text))) }
}

/** Returns a directory's path without links, relative to the source; null if it is not a directory, or outside. */
export function directoryIn(root: string, path: string): string | null {
  const realRoot = fs.realpathSync(root)
  try {
    const real = fs.realpathSync(path === '' ? root : `${root}/${path}`)
    const isInside = `${real}/`.startsWith(`${realRoot}/`) && fs.statSync(real).isDirectory()
    return isInside ? real.slice(realRoot.length + 1) : null
  } catch {
    return null
  }
}

function projectDir(root: string, wished: string | null): string {
  if (wished === null) return ''
  const name = readName(new TextEncoder().encode(wished))
  if (name.kind === 'root') return ''
  refuseUnless(name.kind === 'path', 'source_invalid', () => 'project_dir: not a relative path inside of the source')
  const dir = name.components.join('/')
  const found = directoryIn(root, dir)
  refuseUnless(found !== null, 'source_invalid', () => `project_dir: ${showName(dir)} is no directory of the source`)
  return found
}

type Choice = Pick<Project, 'toolchain' | 'judgement'>
type ProjectPlace = {
  readonly root: string
  readonly at: string
  readonly has: (name: string) => boolean
  readonly toolchains: Toolchains
}

async function toolchainOf(request: ProjectRequest, { root, at, has, toolchains }: ProjectPlace): Promise<Choice> {
  // A request with options of a toolchain selects it.
  const wished = request.toolchain ?? toolchainOfOptions(request.options)
  if (wished !== null) {
    const { manifest } = toolchains[wished]
    refuseUnless(
      has(manifest),
      'toolchain_undetected',
      () => `toolchain ${wished}: there is no ${manifest} in the project; ${directoryAdvice(root, [manifest])}`,
    )
    return { toolchain: wished, judgement: null }
  }
  const rows = Object.entries(toolchains) as [ToolchainName, Toolchain][]
  const found = rows.filter(([, { manifest }]) => has(manifest))
  // A manifest without its lock does not take precedence over one that has it.
  const locked = found.filter(([, { lock }]) => has(lock))
  const [first] = locked[0] ?? found[0] ?? []
  const manifests = [...new Set(rows.map(([, { manifest }]) => manifest))].join(', ')
  refuseUnless(
    first !== undefined,
    'toolchain_undetected',
    () =>
      `source: none of ${manifests} in the project; ${directoryAdvice(
        root,
        rows.map(([, { manifest }]) => manifest),
      )}`,
  )
  if (locked.length < 2) return { toolchain: first, judgement: null }
  const words: string[] = []
  for (const [index, [name, { manifest, lock, problemOf }]] of locked.entries()) {
    const problem = problemOf(await readBounded(`${at}/${lock}`, lock), request)
    const rest = locked.slice(index + 1)
    if (problem !== null && rest.length > 0) {
      words.push(`${manifest} cannot be built: ${problem}`)
      continue
    }
    const own =
      words.length > 0
        ? `${manifest} with ${lock} can be built`
        : `${manifest} needs no unavailable input, and takes precedence`
    const others = rest.map(([, other]) => `${other.manifest} with ${other.lock} can be built, too`)
    return { toolchain: name, judgement: [...words, own, ...others].join('; ') }
  }
  throw new Error('invariant broken: the last toolchain is taken')
}

const advisedMax = 5
const lookedAtMax = 500
const depthMax = 3

/** Lists directories of the source that contain one of the manifests: upper ones first, up to a limit. */
function directoryAdvice(root: string, manifests: readonly string[]): string {
  const found: string[] = []
  const waiting = ['']
  for (let index = 0; index < waiting.length && index < lookedAtMax && found.length < advisedMax; index += 1) {
    const dir = waiting[index] ?? ''
    const entries = fs.readdirSync(dir === '' ? root : `${root}/${dir}`, { withFileTypes: true })
    if (dir !== '' && entries.some(entry => entry.isFile() && manifests.includes(entry.name))) found.push(dir)
    if (dir.split('/').length >= depthMax && dir !== '') continue
    const below = entries.filter(entry => entry.isDirectory() && !passedOver.has(entry.name))
    waiting.push(...below.map(({ name }) => (dir === '' ? name : `${dir}/${name}`)).sort())
  }
  if (found.length === 0) return 'no directory near the root of the source has one'
  return `name its directory by project_dir: ${found.map(showName).join(', ')}`
}

/** Directories with packages of others. */
const passedOver: ReadonlySet<string> = new Set(['.git', 'node_modules', 'target', 'third_party', 'vendor'])

export async function readBounded(path: string, what: string): Promise<string> {
  const { O_RDONLY, O_NOFOLLOW } = fs.constants
  const file = await fs.promises.open(path, O_RDONLY | O_NOFOLLOW)
  try {
    const { size } = await file.stat()
    refuseUnless(size <= lockBytesMax, 'source_invalid', () => `${what}: more than ${lockBytesMax} bytes`)
    const bytes = await file.readFile()
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      throw new BuildFailure('source_invalid', `${what}: not UTF-8`)
    }
  } finally {
    await file.close()
  }
}
