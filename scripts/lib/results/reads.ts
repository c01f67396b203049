// Which files of the repository a test file can read, and how. Pure but for the tree.
//
// A test reads what it and its modules import or name (names.ts), and what those files name. Code that runs counts
// without comments and types, since neither can change a result: no test knows the lines of a stack trace but from the
// run itself. A module counts as bytes where the test reads it as text: where the module that names it also calls
// something that reads files, or hands the path to one that does. A test of which one module may read anything reads
// the whole tree but the tests beside it, and counts as if it did.

import { PHASES } from '../phases.ts'
import { namesOf, type Reading } from './names.ts'
import type { SourceTree } from './tree.ts'

export type Reads = {
  /** Paths in the tree, sorted, each with how it is read. */
  readonly files: ReadonlyMap<string, Reading>
  /** The module because of which nearly all files count; null if the test names all that it reads. */
  readonly because: string | null
}

/** Read by each run: versions, aliases of imports, options of the compiler and of the runner. */
const always = ['package.json', 'bun.lock', 'bunfig.toml', 'tsconfig.json']
const isModule = /\.tsx?$/
const isTest = /\.test\.tsx?$/

/**
 * Modules that name files which they do not read, each with the files that it reads instead, as code. A path that ends
 * in `/` is a folder. The modules that they import run, and read no more than this either.
 */
export const DECLARED: Readonly<Record<string, readonly string[]>> = {
  // A caller that wants a list of tests names the root.
  'scripts/lib/phases.ts': [],
  // Its callers name the threads.
  'src/base/work/request-thread.ts': [],
  // Lists PWD among the variables that no secret may have.
  'src/contract/vm/orders/secret.ts': [],
  // The bundler drops comments and types, too.
  'src/console/page/build.ts': ['src/console/web/'],
  // The executable that is built for users.
  'test/rigs/built/program.ts': ['src/main.ts', 'scripts/build/', 'scripts/lib/bun.lock.json'],
  // Runs tests of the gateway against an enclave that it builds, and chooses them by their text.
  'test/rigs/enclave/suite.ts': ['test/inference/', 'scripts/rigs/enclave/process.ts', 'scripts/build/'],
}
/** These modules choose tests by their text, so each test counts as bytes. */
const choosesTests: ReadonlySet<string> = new Set(['test/rigs/enclave/suite.ts'])
/** In a run that has built images and executables: what these name is in the images' digests, or in the executables. */
const isBuilder = /^scripts\//

/** `needsBuild`: the test uses the built executables or images. */
export function readsOf(tree: SourceTree, file: string, needsBuild: boolean): Reads {
  const found = new Map<string, Reading>(always.filter(tree.isFile).map(path => [path, 'bytes']))
  let whole: Reading | null = needsBuild ? 'code' : null
  let because = needsBuild ? file : null
  const add = (path: string, reading: Reading) => {
    if (found.get(path) !== 'bytes') found.set(path, isModule.test(path) ? reading : 'bytes')
  }
  /** Modules of the tests and scripts, with the paths' names that other modules may hand to what reads text. */
  const callers: string[] = []
  const paths = new Map<string, string>()
  const waiting: { readonly path: string; readonly isQuiet: boolean }[] = [{ path: file, isQuiet: false }]
  /** Quiet: reached only from a declared module, so that what it names does not count. */
  const seen = new Map<string, boolean>()
  add(file, 'code')
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { path, isQuiet } = next
    if (seen.get(path) === false || seen.get(path) === isQuiet) continue
    seen.set(path, isQuiet)
    const names = namesOf(tree, path)
    const declared = DECLARED[path]
    const isLoud = !isQuiet && declared === undefined
    for (const [named, reading] of names.files) {
      if (!isLoud && !names.imports.has(named)) continue
      add(named, isLoud ? reading : 'code')
      // With the whole tree as code, what a program reads that the test starts adds nothing.
      if (!needsBuild || names.imports.has(named)) waiting.push({ path: named, isQuiet: !isLoud })
    }
    for (const name of declared ?? []) {
      for (const inside of name.endsWith('/') ? tree.below(name.slice(0, -1)) : [name]) {
        if (!tree.isFile(inside) || inside.endsWith(PHASES.image.suffix)) continue
        add(inside, choosesTests.has(path) && isTest.test(inside) ? 'bytes' : 'code')
        // A script beside the declared ones is one that they run.
        waiting.push({ path: inside, isQuiet: inside.startsWith('scripts/build/') })
      }
    }
    if (!isLoud) continue
    const ofModule = needsBuild && isBuilder.test(path) && names.whole !== null ? 'code' : names.whole
    if (ofModule !== null && whole !== 'bytes') {
      if (whole !== ofModule || because === null) because = path
      whole = ofModule
    }
    if (!path.startsWith('src/') && isModule.test(path)) callers.push(path)
    for (const [name, target] of names.exported) paths.set(name, target)
  }
  for (const [name, target] of paths) {
    const reads = new RegExp(`\\b(?:read\\w*|open\\w*|file|copy\\w*|cp\\w*|sha256\\w*)\\([^;]*\\b${name}\\b`)
    if (callers.some(path => reads.test(tree.code(path)))) add(target, 'bytes')
  }
  if (whole !== null) for (const path of tree.files) if (isCommon(path)) add(path, whole)
  return { files: new Map([...found].sort(([a], [b]) => (a < b ? -1 : 1))), because }
}

/** Not other tests, nor texts that only people read: those of the product's rooms are in its help. */
function isCommon(path: string): boolean {
  return !isTest.test(path) && (!path.endsWith('.md') || /^src\/.+\//.test(path))
}
