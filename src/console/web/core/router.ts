// The page's address: path and query, and moving between pages. Effects: the history of the browser.

import { signal } from '@preact/signals'

export type Address = { readonly path: string; readonly query: ReadonlyMap<string, string> }

export const address = signal<Address>(readAddress(globalThis.location?.href ?? 'https://localhost/'))

/** Call once. */
export function followHistory(): void {
  addEventListener('popstate', () => {
    address.value = readAddress(location.href)
  })
}

/** Moves to another page of ours. */
export function go(href: string, { replace = false }: { replace?: boolean } = {}): void {
  if (replace) history.replaceState(null, '', href)
  else history.pushState(null, '', href)
  address.value = readAddress(location.href)
  if (!replace) scrollTo(0, 0)
}

/** Changes the query of this page in place; an empty value removes its name. */
export function setQuery(name: string, value: string): void {
  const { path, query } = address.value
  const params = new URLSearchParams([...query])
  if (value === '') params.delete(name)
  else params.set(name, value)
  go(params.size === 0 ? path : `${path}?${params}`, { replace: true })
}

export function readAddress(href: string): Address {
  const { pathname, searchParams } = new URL(href)
  const path = pathname.length > 1 ? pathname.replace(/\/+$/, '') : pathname
  return { path, query: new Map(searchParams) }
}

/** The decoded parts of a path that a pattern like `/instances/:org/:name` names; null: it does not fit. */
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
