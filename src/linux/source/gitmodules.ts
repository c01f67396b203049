// Reads .gitmodules (gitmodules(5), in the syntax of git-config(1)). Pure.

export const modulesBytesMax = 64 * 1024

export type NamedSubmodule = {
  readonly path: string
  /** Null if the section names no address. */
  readonly url: string | null
}

/** Returns the submodules that a .gitmodules file names, at most `countMax`. The last of two values counts. */
export function submodulesIn(text: string, countMax: number): NamedSubmodule[] {
  const found: NamedSubmodule[] = []
  let section: { path: string | null; url: string | null } = { path: null, url: null }
  const end = () => {
    if (section.path !== null && found.length < countMax) found.push({ path: section.path, url: section.url })
    section = { path: null, url: null }
  }
  for (const raw of text.split('\n')) {
    const line = raw.trim()
    if (line.startsWith('[')) end()
    const at = line.indexOf('=')
    const key = line.slice(0, Math.max(at, 0)).trim().toLowerCase()
    const value = unquoted(line.slice(at + 1).trim())
    if (value !== '' && (key === 'path' || key === 'url')) section[key] = value
  }
  end()
  return found
}

/** Takes the quotes off a quoted value. A comment behind a value stays part of it. */
function unquoted(text: string): string {
  if (text.length < 2 || !text.startsWith('"') || !text.endsWith('"')) return text
  return text.slice(1, -1).replace(/\\(["\\])/g, '$1')
}
