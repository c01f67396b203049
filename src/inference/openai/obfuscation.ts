// Padding of a stream's chunks, so that their sizes reveal little about their words. Pure: the caller passes
// randomness.
//
// The field is OpenAI's `obfuscation`: random characters in a chunk, controlled by
// `stream_options.include_obfuscation`; clients ignore it. Chunks up to 32 bytes above an empty one, which covers
// nearly every token, all get the same size; longer ones grow in steps of 32.

export type Obfuscate = (chunk: string, headBytes: number) => string

const stepBytes = 32
/** Size of the choices of a chunk without content. */
export const emptyChoicesBytes = '[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}]'.length

/**
 * Returns a function that pads a chunk, which is a JSON object. `headBytes`: number of its bytes that are the same in
 * every chunk of its stream.
 */
export function createObfuscate(random: (lengthBytes: number) => Uint8Array): Obfuscate {
  return (chunk, headBytes) => {
    const overBytes = Buffer.byteLength(chunk) - headBytes - emptyChoicesBytes
    const steps = Math.max(1, Math.ceil(overBytes / stepBytes))
    const padding = randomText(steps * stepBytes - overBytes, random)
    return `${chunk.slice(0, -1)},"obfuscation":"${padding}"}`
  }
}

/** Returns random characters, because repeated ones would vanish if a proxy compresses the stream. */
function randomText(lengthChars: number, random: (lengthBytes: number) => Uint8Array): string {
  return random(Math.ceil((lengthChars * 3) / 4))
    .toBase64({ alphabet: 'base64url', omitPadding: true })
    .slice(0, lengthChars)
}
