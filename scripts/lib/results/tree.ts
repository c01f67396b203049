// The files of the source tree and their digests. Reads only.

import { lstatSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sha256Text } from '../../image/digest.ts'

/** Made from the others, or no input of a test. */
const leftOut: ReadonlySet<string> = new Set(['.git', 'node_modules', 'dist'])

export type SourceTree = {
  readonly root: string
  /** Paths below the root, sorted. */
  readonly files: readonly string[]
  readonly isFile: (path: string) => boolean
  /** The files below a folder. */
  readonly below: (folder: string) => readonly string[]
  readonly text: (path: string) => string
  readonly digest: (path: string) => string
  /** Returns a module's text without comments, types and blank space. */
  readonly code: (path: string) => string
  readonly codeDigest: (path: string) => string
  /** The file that `#name` means to an import (package.json), or null. */
  readonly alias: (name: string) => string | null
}

/** Each file is read once: the tree is that of one moment (see `stampOf`). */
export function readTree(root: string): SourceTree {
  const files = listed(root, '').sort()
  const known = new Set(files)
  const texts = new Map<string, string>()
  const digests = new Map<string, string>()
  const text = (path: string) => once(texts, path, () => readFileSync(join(root, path), 'latin1'))
  const codes = new Map<string, string>()
  const codeDigests = new Map<string, string>()
  const code = (path: string) => once(codes, path, () => codeOf(path, readFileSync(join(root, path), 'utf8')))
  const folders = new Map<string, readonly string[]>()
  return {
    root,
    files,
    isFile: path => known.has(path),
    below: folder => once(folders, folder, () => files.filter(path => path.startsWith(`${folder}/`))),
    text,
    digest: path => once(digests, path, () => sha256Text(text(path))),
    code,
    codeDigest: path => once(codeDigests, path, () => sha256Text(`code ${code(path)}`)),
    alias: name => (known.has('package.json') ? aliasOf(text('package.json'), name) : null),
  }
}

/**
 * Returns a module's code as Bun runs it: no comments, types or blank space, and each string as it was. The text itself
 * if Bun cannot read it, or if it mentions what Bun would evaluate here.
 */
export function codeOf(path: string, text: string): string {
  if (/\bNODE_ENV\b|@__PURE__|#__PURE__/.test(text)) return text
  const loader = path.endsWith('x') ? 'tsx' : 'ts'
  try {
    return new Bun.Transpiler({ ...keepsAll, loader }).transformSync(text)
  } catch {
    return text
  }
}

/** Drops nothing that could run, nor an import that has no use. */
const keepsAll = {
  target: 'bun',
  minifyWhitespace: true,
  deadCodeElimination: false,
  treeShaking: false,
  trimUnusedImports: false,
  inline: false,
  tsconfig: JSON.stringify({
    compilerOptions: { verbatimModuleSyntax: true, jsx: 'react-jsx', jsxImportSource: 'preact' },
  }),
} as const

function aliasOf(manifest: string, name: string): string | null {
  const { imports = {} }: { imports?: Record<string, string | Record<string, string>> } = JSON.parse(manifest)
  const found = imports[name]
  const target = typeof found === 'object' ? found.default : found
  return target === undefined ? null : target.replace(/^\.\//, '')
}

/** Changes with every write to a file of the tree, also with one that leaves its bytes as they were. */
export function stampOf({ root, files }: SourceTree): string {
  const now = listed(root, '').sort()
  if (now.length !== files.length) return `${now.length} files`
  const stats = now.map(path => lstatSync(join(root, path)))
  return sha256Text(JSON.stringify(stats.map(({ mtimeMs, size, ino }) => [mtimeMs, size, ino])))
}

function listed(root: string, directory: string): string[] {
  return readdirSync(join(root, directory), { withFileTypes: true }).flatMap(entry => {
    const path = directory === '' ? entry.name : `${directory}/${entry.name}`
    if (directory === '' && leftOut.has(entry.name)) return []
    return entry.isDirectory() ? listed(root, path) : [path]
  })
}

function once<T>(known: Map<string, T>, key: string, make: () => T): T {
  const found = known.get(key)
  if (found !== undefined) return found
  const made = make()
  known.set(key, made)
  return made
}
