// Which files of the repository a module names: those that it imports, and those that it may read or start at run time.
// Pure but for the tree. Looks at the module's code without comments and types.
//
// Each way to name a path must be one of those below. A module that names a path in another way counts as one that
// reads the whole tree.
//
// - A literal beside the module's own place: `join(import.meta.dir, '../a.ts')`, `new URL('./b/', import.meta.url)`.
//   A name that follows the literals stands for anything in their folder.
// - A folder in a constant, whose other mentions are literals below it, or the working directory of a
//   program.
// - A literal from the repository's root: `'src/main.ts'`. A program's working directory is the root.
// - The paths of Bun and of a program's arguments, and the environment: the module that starts the program names the
//   files.

import { dirname, join, normalize } from 'node:path'
import type { SourceTree } from './tree.ts'

/** How a file is read: as the code that it is, or as its bytes. */
export type Reading = 'code' | 'bytes'

export type Names = {
  /** Paths of files, each with how the module reads it. Code runs, and reads what it names itself. */
  readonly files: ReadonlyMap<string, Reading>
  /** The files that it imports; each is in `files`. */
  readonly imports: ReadonlySet<string>
  /** How the module reads the whole tree; null if it names all that it reads. */
  readonly whole: Reading | null
  /** Exported constants that hold a path: the name, and the file. */
  readonly exported: readonly (readonly [name: string, file: string])[]
}

const isModule = /\.tsx?$/
/** Other programs and pages, whose own text names what they use. */
const isProgram = /\.(?:[cm]?js|sh|py|go|rs|toml|html|css)$/
const literal = /(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`$\\]*`)/.source
const own = String.raw`import\.meta\.(?:dir|dirname)\b`

const imported = new RegExp(String.raw`(?:\bfrom|\bimport)\s*\(?\s*(${literal})`, 'g')
/** `join(import.meta.dir,"..","a"`, and whether another argument follows. */
const joined = new RegExp(String.raw`\b(?:join|resolve)\(${own}((?:,(?:${literal}))*)([,)])`, 'g')
const inTemplate = new RegExp(`\`\\$\\{${own}\\}([^\`$\\\\]*)(\`|\\$\\{)`, 'g')
const asUrl = new RegExp(
  String.raw`\bnew URL\((?:(${literal})|${'`'}([^${'`'}$\\]*)\$\{[^${'`'}]*${'`'}),import\.meta\.url\)(?:\.(?:pathname|href))?`,
  'g',
)
const neighbour = /(["'`])(\.\.?\/[^"'`\n$\\]*)(\1|\$\{)/g
/** Matches a path of a locked package. */
const isOfPackages = /(?:^|\/)node_modules\//
const chosenUrl = new RegExp(String.raw`\bnew URL\(([\w$.]+\?${literal}:${literal}),import\.meta\.url\)`, 'g')
/** Whether the module is part of an executable. */
const questions = /\bimport\.meta\.(?:url|path)\.(?:includes|startsWith)\(/g
/** And whether a pattern or a computed part follows. */
const fromRoot = /(?<=["'`/{,}])((?:src|scripts|test|dist|guest-image|examples)\/[\w.@/-]*)([*{?[$]?)/g
/** Calls that read text or list folders: a module with one of them may read the sources that it names. */
const readsText =
  /\b(?:readFile\w*|readText\w*|open(?:Sync)?|createReadStream|Bun\.file|copyFile\w*|cp(?:Sync)?|sha256\w*|Glob|readdir\w*|opendir\w*|filesBelow|Transpiler|readTree)\(|\bnew (?:Bun\.)?(?:Glob|Transpiler)\b|\btypescript\b|\btsc\b|\bbiome\b/

/** Git lists and shows files of this repository, unless its arguments name another repository. */
const usesGit =
  /(?:[[(,]|[^=!]=)["'`]git["'`](?!,(?:\.\.\.\w+,)?(?:["'`](?:-C|http-backend)|["'`]--git-dir=|`--git-dir=))|\bgit (?:-C|ls-files|ls-tree|log|rev-parse|diff|show|status|grep|archive|clone|checkout)\b/
const ownName = /\b(?:__dirname|__filename|PWD|OLDPWD|INIT_CWD)\b|\bimport\.meta\.(?!main\b|file\b|path\b|filename\b)/
const ownPath = /\bimport\.meta\.(?:path|filename)\b/
/** As the working directory of a program. */
const cwdOption = /\bcwd:[^,;{}()]*\bprocess\.cwd\(\)/g
const wholeEnvironment =
  /\bprocess\.env\b(?!\.[A-Z]|\[)(?<!\.\.\.process\.env)(?<!\{[^{}]*\}=process\.env)(?<!\benv=process\.env)/

const known = new WeakMap<SourceTree, Map<string, Names>>()

/** `path`: a file of the tree. */
export function namesOf(tree: SourceTree, path: string): Names {
  const ofTree = known.get(tree) ?? new Map<string, Names>()
  known.set(tree, ofTree)
  const names = ofTree.get(path) ?? readNames(tree, path)
  ofTree.set(path, names)
  return names
}

function readNames(tree: SourceTree, path: string): Names {
  if (isModule.test(path)) return new ModuleReader(tree, path).names()
  const text = isProgram.test(path) || tree.text(path).startsWith('#!') ? tree.text(path) : ''
  // A script in another language is read no further than this.
  const isScript = text.startsWith('#!') && path.startsWith('scripts/')
  const found = new Map<string, Reading>()
  let leadsOut = false
  for (const [, , name = ''] of text.matchAll(neighbour)) {
    const files = nearby(tree, dirname(path), name)
    for (const file of files ?? []) found.set(file, isModule.test(file) ? 'code' : 'bytes')
    if (files === null) leadsOut = true
  }
  return { files: found, imports: new Set(), whole: isScript || leadsOut ? 'bytes' : null, exported: [] }
}

class ModuleReader {
  readonly #tree: SourceTree
  readonly #path: string
  readonly #code: string
  readonly #reading: Reading
  readonly #files = new Map<string, Reading>()
  readonly #imports = new Set<string>()
  readonly #exported: [name: string, file: string][] = []
  #whole: Reading | null = null

  constructor(tree: SourceTree, path: string) {
    this.#tree = tree
    this.#path = path
    this.#code = tree.code(path)
    this.#reading = readsText.test(this.#code) ? 'bytes' : 'code'
  }

  names(): Names {
    let rest = this.#code.replace(imported, (_, name: string) => {
      this.#addImport(unquoted(name))
      return ' '
    })
    const isProduct = this.#path.startsWith('src/')
    rest = rest.replace(questions, ' ').replace(chosenUrl, '$1')
    rest = rest.replace(joined, (_, parts: string, end: string, at: number) => {
      const name = literalsOf(parts).join('/')
      this.#addPlace(rest, at, this.#beside(name), end === ',' ? 'below' : 'itself')
      return ' '.repeat(_.length)
    })
    rest = rest.replace(inTemplate, (_, name: string, end: string, at: number) => {
      this.#addPlace(rest, at, this.#beside(end === '`' ? name : name.replace(/[^/]*$/, '')), 'itself')
      return end === '`' ? ' '.repeat(_.length) : ` ${' '.repeat(_.length - 3)}\${`
    })
    rest = rest.replace(asUrl, (_, name: string | undefined, prefix: string | undefined, at: number) => {
      const place = name === undefined ? (prefix ?? '').replace(/[^/]*$/, '') : unquoted(name)
      this.#addPlace(rest, at, this.#beside(place), 'itself')
      return ' '.repeat(_.length)
    })
    for (const [, , name = ''] of rest.matchAll(neighbour)) {
      const files = nearby(this.#tree, dirname(this.#path), name)
      for (const file of files ?? []) if (!isProduct || file === this.#beside(name)) this.#add(file)
      if (files === null && !isProduct) this.#addWhole('bytes')
    }
    if (ownPath.test(rest)) this.#files.set(this.#path, 'bytes')
    if (/\bdirname\(import\.meta\b/.test(rest) || ownName.test(rest)) this.#addWhole('bytes')
    if (isProduct) this.#readThreads(rest)
    else this.#readPlainNames(rest)
    return { files: this.#files, imports: this.#imports, whole: this.#whole, exported: this.#exported }
  }

  /** Threads go by their path from src, without the extension (base/work/request-thread.ts). */
  #readThreads(rest: string): void {
    for (const [, name] of rest.matchAll(/["'`]([\w-]+(?:\/[\w-]+)+)["'`]/g)) {
      const file = `src/${name}.ts`
      if (this.#tree.isFile(file)) this.#add(file)
    }
  }

  /** Reads the names in tests and scripts. The product itself names its files by its own place alone. */
  #readPlainNames(rest: string): void {
    for (const [, text = '', more] of rest.matchAll(fromRoot)) {
      const place = more === '' ? text : text.replace(/[^/]*$/, '')
      // The executables are made from nearly everything.
      if (place.startsWith('dist/')) this.#addWhole('code')
      else for (const file of below(this.#tree, place)) this.#add(file)
    }
    if (/\bprocess\.cwd\(\)/.test(rest.replace(cwdOption, ''))) this.#addWhole('bytes')
    if (usesGit.test(rest) || wholeEnvironment.test(rest)) this.#addWhole('bytes')
  }

  #beside(name: string): string {
    return normalize(join(dirname(this.#path), name)).replace(/\/$/, '')
  }

  #addImport(name: string): void {
    const alias = name.startsWith('#') ? this.#tree.alias(name) : null
    if (!name.startsWith('.') && alias === null) return
    const file = alias ?? this.#beside(name)
    if (!this.#tree.isFile(file)) return
    this.#imports.add(file)
    // The same file may be read as text elsewhere in the module.
    if (this.#files.get(file) !== 'bytes') this.#files.set(file, isModule.test(file) ? 'code' : 'bytes')
  }

  /** An expression at `at` of the code whose value is `place`, or something below it. */
  #addPlace(code: string, at: number, place: string, what: 'itself' | 'below'): void {
    const [, isExported, name] = /(?:(\bexport )?\b(?:const|let) |,)([\w$]+)=$/.exec(code.slice(0, at)) ?? []
    if (what === 'itself' && name !== undefined && !this.#tree.isFile(place)) {
      if (isExported === undefined && !new RegExp(`\\bexport\\{[^}]*\\b${name}\\b`).test(code)) {
        if (this.#addUses(code, at, name, place)) return
      }
    }
    if (this.#tree.isFile(place)) {
      this.#add(place)
      if (isExported !== undefined && name !== undefined) this.#exported.push([name, place])
    } else if (place === '.' || place === '' || place.startsWith('..')) this.#addWhole('bytes')
    else if (place === 'dist' || place.startsWith('dist/')) this.#addWhole('code')
    else for (const file of below(this.#tree, place)) this.#add(file)
  }

  /** Reports whether each mention of the constant `name`, which holds a folder, is a literal below it. */
  #addUses(code: string, at: number, name: string, folder: string): boolean {
    const escaped = name.replaceAll('$', '\\$')
    const places: string[] = []
    const use = new RegExp(
      [
        String.raw`\b(?:join|resolve)\(${escaped}((?:,(?:${literal}))+)([,)])`,
        `\`\\$\\{${escaped}\\}/([^\`$\\\\]*)(\`|\\$\\{)`,
        String.raw`\bnew URL\((${literal}),${escaped}\)`,
        ...(folder === '.' ? [String.raw`\b(?:cwd|root):${escaped}\b`] : []),
        String.raw`\brelative\(${escaped},`,
      ].join('|'),
      'g',
    )
    const before = code.slice(0, at - name.length - 1)
    const rest = `${before} ${code.slice(at)}`.replace(use, (_, parts, end, text, textEnd, url) => {
      if (parts !== undefined) places.push(join(folder, ...literalsOf(parts), end === ',' ? '/' : ''))
      if (text !== undefined) places.push(join(folder, textEnd === '`' ? text : text.replace(/[^/]*$/, '')))
      if (url !== undefined) places.push(join(folder, unquoted(url)))
      return ' '
    })
    if (new RegExp(`(?<![\\w$.])${escaped}(?![\\w$])`).test(rest)) return false
    for (const found of places) {
      const place = normalize(found).replace(/\/$/, '')
      if (place === '.' || place.startsWith('..')) return false
      if (place === 'dist' || place.startsWith('dist/')) this.#addWhole('code')
      for (const file of below(this.#tree, place)) this.#add(file)
    }
    return true
  }

  #add(file: string): void {
    const isCode = isModule.test(file) && this.#reading === 'code'
    if (!isCode) this.#files.set(file, 'bytes')
    else if (!this.#files.has(file)) this.#files.set(file, 'code')
  }

  #addWhole(reading: Reading): void {
    if (this.#whole !== 'bytes') this.#whole = reading
  }
}

/**
 * Returns the files that a relative name means from this folder. If there is none, returns those that it may mean from
 * another folder; null if that may be every file.
 */
function nearby(tree: SourceTree, folder: string, name: string): readonly string[] | null {
  const found = below(tree, join(folder, name))
  if (found.length > 0 || !name.startsWith('../') || isOfPackages.test(name)) return found
  const rest = normalize(name.replace(/^(?:\.\.?\/+)+/, '')).replace(/\/$/, '')
  if (/^\.{0,2}$/.test(rest)) return null
  return tree.files.filter(path => `/${path}`.endsWith(`/${rest}`) || `/${path}`.includes(`/${rest}/`))
}

/** The file, or the files below the folder. */
function below(tree: SourceTree, place: string): readonly string[] {
  const path = normalize(place).replace(/\/$/, '')
  if (tree.isFile(path)) return [path]
  return path === '.' || path.startsWith('..') ? [] : tree.below(path)
}

function literalsOf(text: string): string[] {
  return [...text.matchAll(new RegExp(literal, 'g'))].map(([quoted]) => unquoted(quoted))
}

function unquoted(text: string): string {
  return text.slice(1, -1)
}
