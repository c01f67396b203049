// Certificates and CRLs in the forms that callers pass: DER, PEM, or bundles of PEM blocks (RFC 7468). Pure; throws
// Malformed.

import { fromBase64, fromUtf8, toBase64 } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import { Malformed, wellFormed } from '../malformed.ts'

/** DER bytes, or PEM as text or bytes, possibly with several blocks. */
export type PemOrDer = string | Uint8Array

type PemLabel = 'CERTIFICATE' | 'X509 CRL' | 'PUBLIC KEY'

/** Limits on a caller's input. AMD's certificates are about 1.7 KiB. */
export const BUNDLE_LIMITS = { bytesMax: 64 * 1024, blocksMax: 16, derBytesMax: 32 * 1024 } as const

/**
 * Returns the DER of every block with this label, in order. Ignores blocks with other labels, and text between blocks.
 */
export function derBlocks(input: PemOrDer, label: PemLabel, what: string): Uint8Array[] {
  wellFormed(
    input.length <= BUNDLE_LIMITS.bytesMax,
    `${what}: ${input.length} bytes, at most ${BUNDLE_LIMITS.bytesMax}`,
  )
  // A DER SEQUENCE begins with 0x30, the character '0', and no PEM text does.
  if (typeof input !== 'string' && input[0] === 0x30) return [bounded(input, what)]
  const text = typeof input === 'string' ? input : asciiText(input, what)
  const blocks = pemBlocks(text, what).filter(block => block.label === label)
  wellFormed(blocks.length > 0, `${what}: no ${label} in it`)
  return blocks.map(block => block.der)
}

/** Encodes one PEM block with lines of 64 characters. */
export function toPem(der: Uint8Array, label: PemLabel): string {
  const lines = toBase64(der).replace(/.{64}(?=.)/g, '$&\n')
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`
}

const boundary = /^-----(BEGIN|END) ([A-Z0-9 ]{1,32})-----$/

function pemBlocks(text: string, what: string): { label: string; der: Uint8Array }[] {
  const blocks: { label: string; der: Uint8Array }[] = []
  let open: string | null = null
  let base64: string[] = []
  for (const untrimmed of text.split('\n')) {
    const line = untrimmed.trim()
    const [, kind, label] = boundary.exec(line) ?? []
    if (kind === undefined || label === undefined) {
      if (open !== null) base64.push(line)
      continue
    }
    wellFormed((kind === 'BEGIN') === (open === null), `${what}: BEGIN and END lines of PEM blocks do not alternate`)
    if (kind === 'BEGIN') {
      open = label
      base64 = []
      continue
    }
    wellFormed(label === open, `${what}: a PEM block that ends as something else`)
    const der = fromBase64(base64.join(''))
    if (der === null) throw new Malformed(`${what}: a PEM block that is not base64`)
    blocks.push({ label, der: bounded(der, what) })
    wellFormed(blocks.length <= BUNDLE_LIMITS.blocksMax, `${what}: more than ${BUNDLE_LIMITS.blocksMax} PEM blocks`)
    open = null
  }
  wellFormed(open === null, `${what}: a PEM block without an end`)
  return blocks
}

function bounded(der: Uint8Array, what: string): Uint8Array {
  wellFormed(der.length <= BUNDLE_LIMITS.derBytesMax, `${what}: ${der.length} bytes of DER`)
  return der
}

function asciiText(bytes: Uint8Array, what: string): string {
  const text = resultOr(() => fromUtf8(bytes), null)
  wellFormed(text !== null && /^[\x20-\x7e\n\r\t]*$/.test(text), `${what}: neither DER nor PEM`)
  return text
}
