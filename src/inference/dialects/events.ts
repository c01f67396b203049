// Events of streams that have names, and their padding. Pure.

import { emptyChoicesBytes, type Obfuscate } from '../openai/obfuscation.ts'

/** Builds one event. `data` is JSON, so it has no line breaks. */
export function namedEvent(name: string, data: string): string {
  return `event: ${name}\ndata: ${data}\n\n`
}

/**
 * Builds an event with a piece of text, padded like a chunk. `data` is a JSON object; `varying`: its values that
 * differ.
 */
export function paddedEvent(
  name: string,
  data: string,
  varying: readonly unknown[],
  obfuscate: Obfuscate | null,
): string {
  if (obfuscate === null) return namedEvent(name, data)
  // Two bytes are the quotes of a string, or the brackets of a list.
  const varyingBytes = varying.reduce<number>((sum, value) => sum + Buffer.byteLength(JSON.stringify(value)) - 2, 0)
  return namedEvent(name, obfuscate(data, Buffer.byteLength(data) - varyingBytes - emptyChoicesBytes))
}
