// Paths of pages and requests: their parts, and queries. Pure.

export type Address = { readonly path: string; readonly query: ReadonlyMap<string, string> }

export function readAddress(href: string): Address {
  const { pathname, searchParams } = new URL(href)
  const path = pathname.length > 1 ? pathname.replace(/\/+$/, '') : pathname
  return { path, query: new Map(searchParams) }
}

/** Returns the decoded parts of a path that match a pattern like `/instances/:org/:name`; null if it does not match. */
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

/** Builds a path, encoding its parts. */
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
