// Response headers with the same names from response to response. Setting only the values that differ takes half as
// long as building the headers from a record. Keeps the headers of the last response, otherwise pure.

/** Returns headers that must be copied at once, as `new Response` does, because the next call changes them. */
export type SameNamed = (headers: Readonly<Record<string, string>>) => Headers

export function createSameNamed(): SameNamed {
  let names: string[] = []
  let values: string[] = []
  let kept = new Headers()
  const begin = (headers: Readonly<Record<string, string>>): Headers => {
    kept = new Headers(headers)
    names = Object.keys(headers)
    values = Object.values(headers)
    return kept
  }
  return headers => {
    let at = 0
    for (const name in headers) {
      if (names[at] !== name) return begin(headers)
      const value = headers[name] ?? ''
      if (values[at] !== value) {
        kept.set(name, value)
        values[at] = value
      }
      at += 1
    }
    return at === names.length ? kept : begin(headers)
  }
}
