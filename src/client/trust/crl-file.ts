// The revocation list that --crl names. A file that is none, or the list of another product, is a mistake of the one
// who gave it, and proves nothing about the evidence. Effects: reads the file. Throws InputFault.

import type { Product } from '../../attest/amd/product.ts'
import { PRODUCT_NAMES } from '../../attest/amd/trusted-roots.ts'
import { BUNDLE_LIMITS, derBlocks } from '../../attest/encoding/pem.ts'
import { Malformed, wellFormed } from '../../attest/malformed.ts'
import type { Check } from '../../attest/verdict.ts'
import { REVOCATION_CHECK } from '../../attest/verify/revocation.ts'
import { commonNameOf } from '../../attest/x509/certificate.ts'
import { decodeCrl } from '../../attest/x509/crl.ts'
import { resultOr } from '../../base/result-or.ts'
import { inputFault, readInput } from '../../terminal/input-file.ts'
import { failureOf } from '../../terminal/verdict-exit.ts'

/** Returns the list's DER. */
export function readCrl(path: string): Uint8Array
export function readCrl(path: string | undefined): Uint8Array | undefined
export function readCrl(path: string | undefined): Uint8Array | undefined {
  if (path === undefined) return undefined
  const bytes = readInput({ path, param: 'crl', bytesMax: BUNDLE_LIMITS.bytesMax })
  try {
    const [der, ...more] = derBlocks(bytes, 'X509 CRL', 'revocation list')
    wellFormed(der !== undefined && more.length === 0, 'not exactly one revocation list')
    decodeCrl(der)
    return der
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    throw inputFault({ path, param: 'crl' }, `no revocation list: ${error.message}`, remedyFor('{Milan|Genoa|Turin}'))
  }
}

/** Throws if the verdict refused the list of --crl because it is the list of another product. */
export function requireCrlOf(
  { product, checks }: { readonly product: Product | null; readonly checks: readonly Check[] },
  path: string | undefined,
  der: Uint8Array | undefined,
): void {
  const isRefused = checks.some(({ name, outcome }) => name === REVOCATION_CHECK && outcome === 'fail')
  if (path === undefined || der === undefined || product === null || !isRefused) return
  // The product is the report's own word, which a forged report chooses.
  if (failureOf({ ok: false, checks: checks.filter(({ name }) => name !== REVOCATION_CHECK) }) === 'evidence') return
  const issuer = resultOr(() => commonNameOf(decodeCrl(der).issuer), '')
  const other = Object.values(PRODUCT_NAMES)
    .map(([name]) => name)
    .find(name => issuer.endsWith(`-${name}`))
  const [own] = PRODUCT_NAMES[product]
  if (other === undefined || other === own) return
  const reason = `the revocation list of ${other}, and the report is of ${own}`
  throw inputFault({ path, param: 'crl' }, reason, remedyFor(own))
}

function remedyFor(product: string): string {
  return `give https://kdsintf.amd.com/vcek/v1/${product}/crl`
}
