// The page's address: path and query, and navigation between pages. Effects: the browser's history.

import { signal } from '@preact/signals'
import { type Address, readAddress } from './path.ts'

export const address = signal<Address>(readAddress(globalThis.location?.href ?? 'https://localhost/'))

/** Follows the browser's history. Call it once. */
export function followHistory(): void {
  addEventListener('popstate', () => {
    address.value = readAddress(location.href)
  })
}

/** Navigates to another page of the console. */
export function go(href: string, { replace = false }: { replace?: boolean } = {}): void {
  if (replace) history.replaceState(null, '', href)
  else history.pushState(null, '', href)
  address.value = readAddress(location.href)
  if (!replace) scrollTo(0, 0)
}

/** Changes the query of this page in place; an empty value removes the name. */
export function setQuery(name: string, value: string): void {
  const { path, query } = address.value
  const params = new URLSearchParams([...query])
  if (value === '') params.delete(name)
  else params.set(name, value)
  go(params.size === 0 ? path : `${path}?${params}`, { replace: true })
}
