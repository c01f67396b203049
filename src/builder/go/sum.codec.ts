// Reads go.sum, and computes its hash of a module (golang.org/x/mod/sumdb/dirhash, Hash1). Pure.

import { sha256 } from '../../attest/hash.ts'
import { fromBase64, toHex, utf8 } from '../../base/bytes.ts'
import { BuildFailure } from '../failure.ts'

const entriesMax = 50_000
const linePattern = /^(\S{1,500}) (v\S{1,200}) h1:([A-Za-z0-9+/]{43}=)$/

/** Returns hashes in hexadecimal by `PATH VERSION`, or `PATH VERSION/go.mod` for a go.mod. Failure `source_invalid`. */
export function readGoSum(text: string): ReadonlyMap<string, ReadonlySet<string>> {
  const lines = text.split('\n').filter(line => line.trim() !== '')
  if (lines.length > entriesMax) throw invalid(`more than ${entriesMax} lines`)
  const sums = new Map<string, Set<string>>()
  if (lines.some(line => /^(?:<{7} |={7}$|>{7} )/.test(line.trimEnd())))
    throw invalid('it contains merge conflict markers')
  for (const line of lines) {
    const [, path = '', version = '', base64 = ''] = linePattern.exec(line.trimEnd()) ?? []
    const hash = fromBase64(base64)
    if (path === '' || hash === null)
      throw invalid(`${JSON.stringify(line.slice(0, 200))} is not a module with its h1 hash`)
    const key = `${path} ${version}`
    sums.set(key, (sums.get(key) ?? new Set()).add(toHex(hash)))
  }
  return sums
}

/** Computes the hash. `files`: SHA-256 in hexadecimal by the file's name in the hash. */
export function hash1(files: ReadonlyMap<string, string>): string {
  const names = [...files.keys()].map(name => [utf8(name), name] as const)
  // Go sorts strings by their bytes.
  names.sort(([a], [b]) => Buffer.compare(a, b))
  return toHex(sha256(utf8(names.map(([, name]) => `${files.get(name)}  ${name}\n`).join(''))))
}

/**
 * Unescapes a path of the module cache, in which an upper-case letter is `!` and its lower-case form. Null if
 * malformed.
 */
export function unescaped(text: string): string | null {
  if (/[A-Z]|!(?![a-z])/.test(text)) return null
  return text.replace(/!([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

function invalid(problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `go.sum: ${problem}; run \`go mod tidy\``)
}
