// Paths of pages and requests: their parts, and queries. Pure.

export type Address = { readonly path: string; readonly query: ReadonlyMap<string, string> }

export function readAddress(href: string): Address {
  const { pathname, searchParams } = new URL(href)
  const path = pathname.length > 1 ? pathname.replace(/\/+$/, '') : pathname
  return { path, query: new Map(searchParams) }
}

/** The decoded parts of a path that a pattern like `/instances/:org/:name` names; null if it does not fit. */
export function matchPath(pattern: string, path: string): readonly string[] | null {
  const wanted = pattern.split('/')
  const given = path.split('/')
  if (wanted.length !== given.length) return null
  const found: string[] = []
  for (const [at, part] of wanted.entries()) {
    const text = given[at] ?? ''
    if (!part.startsWith(':')) {
      if (part !== text) return null
      continue
    }
    const decoded = decodedPart(text)
    if (decoded === null || decoded === '') return null
    found.push(decoded)
  }
  return found
}

/** A path whose parts may hold anything. */
export function pathTo(strings: TemplateStringsArray, ...parts: readonly string[]): string {
  return String.raw({ raw: strings }, ...parts.map(encodeURIComponent))
}

function decodedPart(text: string): string | null {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}
