// One spelling for one value: the JSON Canonicalization Scheme (RFC 8785). Pure.

/** Plain data: null, booleans, numbers, strings, lists and objects of these. */
export type Plain = null | boolean | number | string | readonly Plain[] | { readonly [name: string]: Plain }

/** Names by their UTF-16 code units (3.2.3), no spaces; numbers and texts like JSON.stringify (3.2.2). */
export function canonicalJson(value: Plain): string {
  if (isList(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const members = Object.keys(value)
    .toSorted()
    .map(name => `${JSON.stringify(name)}:${canonicalJson(value[name] ?? null)}`)
  return `{${members.join(',')}}`
}

function isList(value: Plain): value is readonly Plain[] {
  return Array.isArray(value)
}
