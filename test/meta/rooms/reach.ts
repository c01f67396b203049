// Everything that a set of source files reaches through its imports. Pure.

import { posix } from 'node:path'
import { importsOf } from '../source.ts'
import type { Tree } from '../tree.ts'

export type Reach = {
  /** Folders of src, or files right in it. Sorted. */
  readonly rooms: readonly string[]
  /** Packages from npm, and names that package.json maps (`#name`). Sorted. */
  readonly packages: readonly string[]
  /** Files of the tree, the first ones included. Sorted. */
  readonly files: readonly string[]
  /** Relative specifiers that name no file of the tree, and imports of computed names. */
  readonly unresolved: readonly string[]
}

/**
 * `every` follows static, dynamic and type-only imports, re-exports, and other literals that name a source file, such
 * as that of a worker. `evaluated` follows what a runtime evaluates with the first file: static imports of values.
 */
export type Follow = 'every' | 'evaluated'

export function reachOf(tree: Tree, first: readonly string[], follow: Follow): Reach {
  const files = new Set(first)
  const packages = new Set<string>()
  const unresolved = new Set(first.filter(path => !tree.has(path)))
  for (const path of files) {
    for (const specifier of specifiersOf(tree.get(path) ?? '', follow)) {
      const to = posix.join(posix.dirname(path), specifier)
      if (specifier.startsWith('.') && tree.has(to)) files.add(to)
      // A certificate is a text, and reaches nothing.
      else if (specifier.endsWith('.pem')) continue
      else if (specifier === '' || specifier.startsWith('.')) unresolved.add(`${path}: ${specifier}`)
      else if (!/^(?:node|bun):|^bun$/.test(specifier)) packages.add(packageOf(specifier))
    }
  }
  const rooms = new Set([...files].map(path => path.split('/').slice(0, 2).join('/')))
  return {
    rooms: [...rooms].sort(),
    packages: [...packages].sort(),
    files: [...files].sort(),
    unresolved: [...unresolved].sort(),
  }
}

function specifiersOf(text: string, follow: Follow): string[] {
  const imports = importsOf(text)
  if (follow === 'evaluated') {
    return imports.filter(item => !item.isTypeOnly && !item.isDynamic).map(item => item.specifier)
  }
  // Comments that name a file count as well: one too many is found more easily than one too few.
  const literals = [...text.matchAll(/(['"`])(\.{1,2}\/[\w./-]+\.(?:ts|tsx|js))\1/g)].map(match => match[2] ?? '')
  return [...imports.map(item => item.specifier), ...literals]
}

function packageOf(specifier: string): string {
  const parts = specifier.split('/')
  return parts.slice(0, specifier.startsWith('@') ? 2 : 1).join('/')
}
