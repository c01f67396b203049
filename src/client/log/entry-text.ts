// Formats one entry of a transparency log as a line for people. Pure.

export function entryText(entry: Readonly<Record<string, unknown>>): string {
  const { kind, format: _, ...digests } = entry
  return `${kind}  ${Object.entries(digests)
    .map(([name, value]) => `${name} ${value}`)
    .join('  ')}`
}
