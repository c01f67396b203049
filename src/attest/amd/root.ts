// A root that a relying party trusts, with the two intermediates below it. Pure types.

import type { PemOrDer } from '../encoding/pem.ts'
import type { Product } from './product.ts'

/** Whether a root is AMD's or a simulated one is not said here: only AMD's pinned bytes are AMD's (chain-roots.ts). */
export type TrustedRoot = {
  readonly product: Product
  readonly ark: PemOrDer
  /** Used where the evidence brings no intermediate; its subject is the only one that may issue VCEKs, the ASVK's VLEKs. */
  readonly ask: PemOrDer
  readonly asvk: PemOrDer
}
