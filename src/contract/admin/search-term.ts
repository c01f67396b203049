// The text of a search, without secrets. Pure. Page and daemon both use it.

export const searchCharsMax = 64

/** Returns the text to search for. Of a whole key it returns the public prefix, so that the secret is never sent. */
export function searchTerm(text: string): string {
  const term = text.trim().toLowerCase()
  const [, key] = /((?:ca|gw)_[a-z0-9]{8})_/.exec(term) ?? []
  return (key ?? term).slice(0, searchCharsMax)
}
