// Does what the key distribution service sent verify below a trusted root? No effects of its own.

import type { TrustedRoot } from '../../attest/amd/roots.ts'
import { TCB_COMPONENTS } from '../../attest/amd/tcb.ts'
import type { DecodedRoot } from '../../attest/amd/trusted-roots.ts'
import { derBlocks } from '../../attest/encoding/pem.ts'
import { Malformed } from '../../attest/malformed.ts'
import { prepareChain } from '../../attest/verify/chain-prepare.ts'
import { checkRevocation, prepareCrl } from '../../attest/verify/revocation.ts'
import { decodeCertificate, isSame } from '../../attest/x509/certificate.ts'
import { isSignedBy } from '../../attest/x509/signature.ts'
import { hwIdOf, type Tree, type VcekWanted } from './request.ts'

/** Null when it is so, else why not. */
export type Fault = string | null

/** The VCEK that was asked for, below this chain, or below the root's own intermediate when there is none. Its time is not judged. */
export async function vcekFault(
  bytes: Uint8Array,
  { wanted, chain, roots }: { wanted: VcekWanted; chain: Uint8Array | undefined; roots: readonly TrustedRoot[] },
): Promise<Fault> {
  const prepared = await prepareChain({ vek: bytes, chain, roots })
  const failed = prepared.checks.find(one => one.outcome !== 'pass')
  if (failed !== undefined) return `${failed.name}: ${failed.reason}`
  const { extensions, root } = prepared.found ?? {}
  if (root?.product !== wanted.product || extensions?.holder.kind !== 'vcek') return `not a VCEK of ${wanted.product}`
  if (!isSame(extensions.holder.hwId, hwIdOf(wanted.product, wanted.chipId))) return 'the VCEK of another chip'
  const { spl } = extensions
  return TCB_COMPONENTS.every(one => spl[one] === wanted.tcb[one]) ? null : 'the VCEK of another TCB'
}

/** The trusted ARK, and an intermediate of the tree's name that it signed. */
export async function chainFault(bytes: Uint8Array, { root, tree }: { root: DecodedRoot; tree: Tree }): Promise<Fault> {
  try {
    const found = derBlocks(bytes, 'CERTIFICATE', 'chain').map(decodeCertificate)
    if (!found.some(one => isSame(one.der, root.ark.der))) return 'chain: without the trusted ARK'
    const expected = tree === 'vcek' ? root.ask : root.asvk
    const intermediate = found.find(one => isSame(one.subject, expected.subject))
    if (intermediate === undefined) return 'chain: without its intermediate'
    return (await isSignedBy(intermediate, root.ark)) ? null : 'chain: an intermediate that the ARK did not sign'
  } catch (error) {
    return reasonOf(error)
  }
}

/** Signed by the trusted ARK, and in force at this time. What it revokes is for verifiers to judge. */
export async function crlFault(
  bytes: Uint8Array,
  { root, nowMs }: { root: DecodedRoot; nowMs: number },
): Promise<Fault> {
  const prepared = await prepareCrl(bytes, root.ark)
  const answer = checkRevocation(prepared, { authorities: [], asOfMs: nowMs, requireCrl: true })
  return answer.outcome === 'pass' ? null : answer.reason
}

function reasonOf(error: unknown): string {
  return error instanceof Malformed ? error.message : `could not be read: ${error}`
}
