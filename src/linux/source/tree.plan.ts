// The tree that an archive may write: plain names, none twice, and no link that leads out. Pure.
//
// Names are compared as git and Linux compare them, byte by byte: `A` and `a` are two files. Each
// name is checked before its file is written, and links are made last, so no file is written through
// a link.

import { fromUtf8 } from '../../base/bytes.ts'

/** The time of every file of a source: 1980-01-01, the first that a zip can hold. */
export const sourceDateEpoch = 315_532_800
export const nameBytesMax = 1024
export const componentBytesMax = 255
export const depthMax = 64
/** No share: limits one archive. */
const linkHopsMax = 40

/** `refused`: `problem` has the reason. `git`: part of an uploaded `.git`. `finder`: part of `__MACOSX`. */
type NameVerdict =
  | { readonly kind: 'path'; readonly components: readonly string[]; readonly isDirectory: boolean }
  | { readonly kind: 'root' }
  | { readonly kind: 'git' }
  | { readonly kind: 'finder' }
  | { readonly kind: 'refused'; readonly problem: string }

/** Judges an entry's name as it stands in the archive. `./` before it and `/` after it mean nothing. */
export function readName(bytes: Uint8Array): NameVerdict {
  const refused = (problem: string): NameVerdict => ({ kind: 'refused', problem })
  if (bytes.length === 0) return refused('an entry without a name')
  // Checked first: git, not the project, chooses the names below it.
  if (isBelowGit(bytes)) return { kind: 'git' }
  if (bytes.length > nameBytesMax) return refused(`a name of more than ${nameBytesMax} bytes`)
  let text: string
  try {
    text = fromUtf8(bytes)
  } catch {
    return refused('a name that is not UTF-8')
  }
  const shown = showName(text)
  if (/[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u.test(text))
    return refused(`${shown}: a control character in a name`)
  if (text.startsWith('/') || /^[A-Za-z]:/.test(text)) return refused(`${shown}: an absolute path`)
  const isDirectory = text.endsWith('/')
  const relative = text.replace(/^(\.\/)+/, '').replace(/\/$/, '')
  if (relative === '' || relative === '.') return { kind: 'root' }
  const components = relative.split('/')
  if (components.includes('..')) return refused(`${shown}: a path with ..`)
  if (components.some(component => component === '' || component === '.'))
    return refused(`${shown}: a path with an empty component`)
  if (components.length > depthMax) return refused(`${shown}: deeper than ${depthMax} directories`)
  if (components.some(component => Buffer.byteLength(component) > componentBytesMax)) {
    return refused(`${shown}: a component of more than ${componentBytesMax} bytes`)
  }
  if (components[0] === finderDirectory) return { kind: 'finder' }
  return { kind: 'path', components, isDirectory }
}

/** Finder adds it to each zip, with an AppleDouble file for each file. */
const finderDirectory = '__MACOSX'

/** Reports whether macOS made a file of this name: Finder's settings, or AppleDouble attributes. */
export function isMacFile(components: readonly string[]): boolean {
  return /^(?:\.DS_Store|\._.+)$/.test(components.at(-1) ?? '')
}

/** Reports whether a name lies in a `.git`. False for an absolute path and one with `..`. */
function isBelowGit(bytes: Uint8Array): boolean {
  const components = Buffer.from(bytes).toString('utf8').split('/')
  return components[0] !== '' && !components.includes('..') && components.some(isGitDirectory)
}

/** Git never tracks these names, so that they are in no tree id; also as HFS+ and NTFS take them for `.git`. */
function isGitDirectory(component: string): boolean {
  const folded = component.replace(/[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g, '').toLowerCase()
  return folded === '.git' || folded === 'git~1'
}

/** For messages: bounded, and without what a terminal would act on. */
export function showName(name: string | Uint8Array): string {
  const text = typeof name === 'string' ? name : Buffer.from(name).toString('utf8')
  return JSON.stringify(text.length > 120 ? `${text.slice(0, 120)}…` : text)
}

type Node =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'directory'; readonly path: string; declared: boolean }
  | { readonly kind: 'link'; readonly path: string; readonly target: string }

/** The tree so far. Every method returns the problem in words, or null. */
export class TreePlan {
  readonly #entriesMax: number
  /** By path. */
  readonly #nodes = new Map<string, Node>()

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax
  }

  addFile(components: readonly string[]): string | null {
    const path = components.join('/')
    return this.#addParents(components) ?? this.#add({ kind: 'file', path })
  }

  addLink(components: readonly string[], target: string): string | null {
    const path = components.join('/')
    const problem = linkTargetProblem(target)
    if (problem !== null) return `${showName(path)}: ${problem}`
    return this.#addParents(components) ?? this.#add({ kind: 'link', path, target })
  }

  addDirectory(components: readonly string[]): string | null {
    const path = components.join('/')
    const parents = this.#addParents(components)
    if (parents !== null) return parents
    const found = this.#nodes.get(path)
    if (found?.kind === 'directory' && !found.declared) {
      found.declared = true
      return null
    }
    return this.#add({ kind: 'directory', path, declared: true })
  }

  links(): readonly { readonly path: string; readonly target: string }[] {
    return [...this.#nodes.values()].filter(node => node.kind === 'link')
  }

  fileCount(): number {
    return [...this.#nodes.values()].filter(node => node.kind === 'file').length
  }

  /** The first link that leads out of the tree, also by way of other links. */
  linkProblem(): string | null {
    for (const { path, target } of this.links()) {
      const parent = path.split('/').slice(0, -1)
      if (!this.#staysInside(parent, target)) return `${showName(path)}: a link that leads out of the source`
    }
    return null
  }

  #staysInside(from: readonly string[], target: string): boolean {
    let at = [...from]
    const ahead = target.split('/')
    let hops = 0
    for (let next = ahead.shift(); next !== undefined; next = ahead.shift()) {
      if (next === '' || next === '.') continue
      if (next === '..') {
        if (at.length === 0) return false
        at.pop()
        continue
      }
      const node = this.#nodes.get([...at, next].join('/'))
      if (node?.kind === 'link') {
        hops += 1
        // A ring leads nowhere, so it does not lead out; the build will see ELOOP.
        if (hops > linkHopsMax) return true
        ahead.unshift(...node.target.split('/'))
      } else {
        at = [...at, next]
      }
    }
    return true
  }

  #addParents(components: readonly string[]): string | null {
    for (let depth = 1; depth < components.length; depth += 1) {
      const path = components.slice(0, depth).join('/')
      const found = this.#nodes.get(path)
      if (found === undefined) {
        const problem = this.#add({ kind: 'directory', path, declared: false })
        if (problem !== null) return problem
      } else if (found.kind !== 'directory') {
        return `${showName(components.join('/'))}: below ${showName(path)}, which is no directory`
      }
    }
    return null
  }

  #add(node: Node): string | null {
    if (this.#nodes.has(node.path)) return `${showName(node.path)}: stands twice in the archive`
    if (this.#nodes.size >= this.#entriesMax) return `more than ${this.#entriesMax} files and directories`
    this.#nodes.set(node.path, node)
    return null
  }
}

/** Checks a link's text alone; `linkProblem` checks its destination once the whole tree is known. */
export function linkTargetProblem(target: string): string | null {
  if (target === '') return 'a link without a target'
  if (Buffer.byteLength(target) > nameBytesMax) return `a link's target of more than ${nameBytesMax} bytes`
  if (target.startsWith('/')) return 'a link to an absolute path'
  if (/[\p{Cc}\p{Cs}]/u.test(target)) return "a control character in a link's target"
  return null
}
