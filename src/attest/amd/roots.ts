// The roots that this library trusts by default: AMD's certificate authorities for each EPYC product. Data.
//
// ARK (root), ASK (signs VCEKs) and ASVK (signs VLEKs), issued by AMD, as its key distribution service serves them.
// Taken from virtee/sev and confidential-containers/trustee (both Apache-2.0). Their SHA-256 fingerprints are pinned in
// test/attest/amd/trusted-roots.test.ts.

/// <reference path="../encoding/pem.d.ts" />

import type { PemOrDer } from '../encoding/pem.ts'
import type { Product } from './product.ts'
import genoaArk from './roots/genoa-ark.pem' with { type: 'text' }
import genoaAsk from './roots/genoa-ask.pem' with { type: 'text' }
import genoaAsvk from './roots/genoa-asvk.pem' with { type: 'text' }
import milanArk from './roots/milan-ark.pem' with { type: 'text' }
import milanAsk from './roots/milan-ask.pem' with { type: 'text' }
import milanAsvk from './roots/milan-asvk.pem' with { type: 'text' }
import turinArk from './roots/turin-ark.pem' with { type: 'text' }
import turinAsk from './roots/turin-ask.pem' with { type: 'text' }
import turinAsvk from './roots/turin-asvk.pem' with { type: 'text' }

/**
 * A root that a relying party trusts, with its two intermediates. trusted-roots.ts separates AMD's from simulated ones.
 */
export type TrustedRoot = {
  readonly product: Product
  readonly ark: PemOrDer
  /** Default intermediates. Only the subject of `ask` may issue VCEKs, and only that of `asvk` VLEKs. */
  readonly ask: PemOrDer
  /** Null if the root certifies no VLEK. */
  readonly asvk: PemOrDer | null
}

/** A root that certifies VLEKs too, as all of AMD's do. */
export type WholeRoot = TrustedRoot & { readonly asvk: PemOrDer }

export const MILAN_ROOT: WholeRoot = { product: 'milan', ark: milanArk, ask: milanAsk, asvk: milanAsvk }

export const GENOA_ROOT: WholeRoot = { product: 'genoa', ark: genoaArk, ask: genoaAsk, asvk: genoaAsvk }

export const TURIN_ROOT: WholeRoot = { product: 'turin', ark: turinArk, ask: turinAsk, asvk: turinAsvk }

export const AMD_ROOTS: readonly WholeRoot[] = [MILAN_ROOT, GENOA_ROOT, TURIN_ROOT]

/** Common names of the certificates in AMD_ROOTS. */
export const AMD_NAMES: readonly string[] = [
  ...['ARK-Milan', 'SEV-Milan', 'SEV-VLEK-Milan'],
  ...['ARK-Genoa', 'SEV-Genoa', 'SEV-VLEK-Genoa'],
  ...['ARK-Turin', 'SEV-Turin', 'SEV-VLEK-Turin'],
]
