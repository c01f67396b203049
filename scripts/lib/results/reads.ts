// Which files of the repository a test file can read. Pure but for the tree.
//
// A test is self-contained if no module of the tests and scripts that it imports can name a file of this repository at
// run time: then it reads what it imports, and nothing else. Any other test may read everything but the tests beside
// it, and counts as if it did.

import { dirname, join } from 'node:path'
import type { SourceTree } from './tree.ts'

export type Reads = {
  /** Paths in the tree, sorted. */
  readonly files: readonly string[]
  /** The module because of which nearly all files count; null if the test is self-contained. */
  readonly because: string | null
}

/** Read by each run: versions, aliases of imports, options of the compiler and of the runner. */
const always = ['package.json', 'bun.lock', 'bunfig.toml', 'tsconfig.json']
const isModule = /\.tsx?$/
const isTest = /\.test\.tsx?$/
/** Ways to get at a path in the repository: from the module's own place, from the working directory, or by git. */
const namesFiles =
  /\bimport\.meta\.(?!main\b)|\bprocess\.(?:execPath|argv|cwd|env)\b|__dirname|['"`/](?:src|scripts|test|dist|guest-image|examples)\/|\bgit\b/
/** Ways in which the product itself reads its sources; a worker is started by its module's own path. */
const bundles = /\bBun\.build\b|\bimport\.meta\.(?:dir|dirname|path|filename)\b|['"]#console-page['"]/
const imported = /(?:\bfrom|\bimport)\s*\(?\s*(?:'([^'\n]+)'|"([^"\n]+)")/g
/** A worker's module, or a file that the module embeds or reads. */
const neighbour = /['"`](\.\.?\/[^'"`\n]+)['"`]/g

/** `needsBuild`: the test uses the built executables or images. */
export function readsOf(tree: SourceTree, file: string, needsBuild: boolean): Reads {
  const found = new Set<string>(always.filter(tree.isFile))
  const waiting = [file]
  let because = needsBuild ? file : null
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (found.has(path)) continue
    found.add(path)
    if (!isModule.test(path)) continue
    const module = moduleOf(tree, path)
    if (module.namesFiles) because ??= path
    waiting.push(...module.imports)
  }
  if (because !== null) for (const path of tree.files) if (isCommon(path)) found.add(path)
  return { files: [...found].sort(), because }
}

/** Not other tests, nor texts that only people read: those of the product's rooms are in its help. */
function isCommon(path: string): boolean {
  return !isTest.test(path) && (!path.endsWith('.md') || /^src\/.+\//.test(path))
}

type Module = { readonly imports: readonly string[]; readonly namesFiles: boolean }

const modules = new WeakMap<SourceTree, Map<string, Module>>()

function moduleOf(tree: SourceTree, path: string): Module {
  const known = modules.get(tree) ?? new Map<string, Module>()
  modules.set(tree, known)
  const before = known.get(path)
  if (before !== undefined) return before
  const text = tree.text(path)
  const names = path.startsWith('src/') ? bundles : namesFiles
  const module = { imports: importsOf(tree, path), namesFiles: names.test(text.replace(imported, '')) }
  known.set(path, module)
  return module
}

function importsOf(tree: SourceTree, path: string): readonly string[] {
  const text = tree.text(path)
  const named = [...text.matchAll(imported), ...text.matchAll(neighbour)].map(
    ([, single, double]) => single ?? double ?? '',
  )
  return named
    .filter(name => name.startsWith('.'))
    .map(name => join(dirname(path), name))
    .filter(tree.isFile)
}
