// Masks secrets in what an upstream sends: each byte becomes an asterisk, so lengths stay. Pure.
//
// An upstream that shows a request, such as an error page with its headers, would give the secret to the program that
// sent it. The forms below are those of usual pages. An upstream that helps its caller can always encode a value in
// another way, which no mask finds.

import { toHex, utf8 } from '../../base/bytes.ts'
import { formatSecret, type Secret } from '../../contract/vm/orders/secret.ts'

const asterisk = 0x2a

/** The texts to mask: the value, as the field has it, percent-encoded, in JSON, HTML, base64 and hexadecimal. */
export function maskedForms(secrets: readonly Pick<Secret, 'format' | 'value'>[]): readonly Buffer[] {
  const texts = secrets.flatMap(({ format, value }) => {
    const basic = (formatSecret(format, value) ?? '').split(' ').at(-1) ?? ''
    const json = JSON.stringify(value).slice(1, -1)
    const html = value
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
    const hex = toHex(utf8(value))
    return [
      ...[value, encodeURIComponent(value), json, json.replaceAll('/', '\\/'), html, html.replaceAll("'", '&#39;')],
      ...[hex, hex.toUpperCase(), ...base64Forms(value)],
      // Base64 of user and value: the whole, as its first characters depend on the user.
      ...(format.includes('{basic:') ? [basic.replace(/=+$/, '')] : []),
    ]
  })
  return [...new Set(texts)].map(text => Buffer.from(text, 'latin1'))
}

/** The characters that depend on the value alone, wherever it begins in the encoded text. */
function base64Forms(value: string): string[] {
  return [0, 1, 2].flatMap(shift => {
    const encoded = btoa(`${'\0'.repeat(shift)}${value}`)
    const inner = encoded.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + value.length) * 8) / 6))
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')]
  })
}

/** Masks one stream. Bytes that may begin a secret are held back until the next ones decide. */
export class Mask {
  readonly #forms: readonly Buffer[]
  readonly #lengthMax: number
  #held: Uint8Array = new Uint8Array(0)

  constructor(forms: readonly Buffer[]) {
    this.#forms = forms
    this.#lengthMax = Math.max(0, ...forms.map(({ length }) => length))
  }

  /** Returns bytes that are decided, perhaps none. */
  push(bytes: Uint8Array): Uint8Array {
    const all = Buffer.concat([this.#held, bytes])
    maskIn(all, this.#forms)
    const open = this.#openFrom(all)
    this.#held = all.subarray(open)
    return all.subarray(0, open)
  }

  /** Returns the rest, at the end of the stream. */
  end(): Uint8Array {
    const rest = this.#held
    this.#held = new Uint8Array(0)
    return rest
  }

  /** Where the first form may begin that these bytes do not end. */
  #openFrom(bytes: Buffer): number {
    for (let at = Math.max(0, bytes.length - this.#lengthMax + 1); at < bytes.length; at += 1) {
      const length = bytes.length - at
      for (const form of this.#forms) {
        if (form[0] !== bytes[at] || form.length <= length) continue
        if (bytes.compare(form, 0, length, at) === 0) return at
      }
    }
    return bytes.length
  }
}

/** Masks every form in the bytes, in place; forms may overlap. */
export function maskIn(bytes: Buffer, forms: readonly Buffer[]): void {
  const found = forms.flatMap(form => {
    const places: [number, number][] = []
    for (let at = bytes.indexOf(form); at !== -1; at = bytes.indexOf(form, at + 1)) places.push([at, at + form.length])
    return places
  })
  for (const [start, end] of found) bytes.fill(asterisk, start, end)
}
