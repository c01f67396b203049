// The page's address: path and query, and moving between pages. Effects: the history of the browser.

import { signal } from '@preact/signals'
import { type Address, readAddress } from './path.ts'

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
