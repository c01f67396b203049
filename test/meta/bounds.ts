// Bounds that clients share, as the source names them, and the list of them in src/BOUNDS.md. Pure.

import type { Tree } from './tree.ts'

/** Bounds of documents, of one VM's own work or of one command, and the pure text of one request. */
const apart =
  /^src\/(?:contract|attest|guest|builder|verifier|cli|console\/web)\/|^src\/inference\/(?:dialects\/|openai\/|schema-check\/(?!p(?:ool|rogram)\.ts$))/

/** Bounds of one message, read or answer, which its own sender alone meets; times; rates a second; attempts. */
const ofOneMessage =
  /^(?:.*(?:Bytes|Chars|Length|Depth|Ms|S|Seconds|Tokens|Digits|Attempts?|PerSecond|Bits|Nodes|Steps|Lines)|depth|attempts|bytes|length|digits|nodes|steps|tokens|lines)Max$|Ms?Max$|MaxMs$|MaxS$|(?:^|_)(?:bytes|ms|chars|tokens|depth)_max$/

const definition =
  /(?:\b(?:const|static|let)\s+(?:readonly\s+)?#?([A-Za-z]*Max(?:[A-Z]\w*)?)\b\s*(?::[^=\n]+)?=)|(?:^\s+#?([a-zA-Z]+Max): (?=[\d(2]))|(?:^\s+([a-z_]+_max): (?:Count|Type)\b)/gm

export type Bound = { readonly path: string; readonly name: string }

/** Where a number is given: a constant, a default, a field of the configuration. */
export function findBounds(tree: Tree): readonly Bound[] {
  const found = new Map<string, Bound>()
  for (const [path, text] of tree) {
    if (apart.test(path)) continue
    for (const [, constant, property, field] of text.matchAll(definition)) {
      const name = constant ?? property ?? field ?? ''
      if (!ofOneMessage.test(name)) found.set(`${path} ${name}`, { path, name })
    }
  }
  return [...found.values()]
}

export type Row = { readonly paths: readonly string[]; readonly names: readonly string[]; readonly share: string }

/** Rows of the list. Names are those in backticks: rows without one are of bounds without a number. */
export function readRows(markdown: string): readonly Row[] {
  const cells = markdown
    .split('\n')
    .filter(line => line.startsWith('| `'))
    .map(line => line.split('|').map(cell => cell.trim()))
  const quoted = (cell: string | undefined) => [...(cell ?? '').matchAll(/`([^`]+)`/g)].map(([, text]) => text ?? '')
  return cells.map(([, where, names, share]) => ({
    paths: quoted(where).map(path => `src/${path}`),
    names: quoted(names),
    share: share ?? '',
  }))
}
