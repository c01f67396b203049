// The text of a search, without secrets. Pure. Page and daemon both use it.

/** Length of a text to search for. No share: limits each search. */
export const searchCharsMax = 64

/** Returns the text to search for; for a whole key its public prefix, so that the secret is never sent. */
export function searchTerm(text: string): string {
  const term = text.trim().toLowerCase()
  const [, key] = /((?:ca|gw)_[a-z0-9]{8})_/.exec(term) ?? []
  return (key ?? term).slice(0, searchCharsMax)
}
