// Checks what the key distribution service sent against a trusted root. No effects of its own.

import type { TrustedRoot } from '../../attest/amd/roots.ts'
import { TCB_COMPONENTS } from '../../attest/amd/tcb.ts'
import type { DecodedRoot } from '../../attest/amd/trusted-roots.ts'
import { derBlocks } from '../../attest/encoding/pem.ts'
import { hwIdOf, type Tree, type VcekWanted } from '../../attest/kds/request.ts'
import { Malformed } from '../../attest/malformed.ts'
import { prepareChain } from '../../attest/verify/chain-prepare.ts'
import { checkRevocation, prepareCrl } from '../../attest/verify/revocation.ts'
import { decodeCertificate, isSame } from '../../attest/x509/certificate.ts'
import { isSignedBy } from '../../attest/x509/signature.ts'

/** Null if everything verifies; otherwise the first problem. */
export type Problem = string | null

/**
 * Checks that these bytes are the wanted VCEK, signed through this chain or, if there is none, through the root's own
 * intermediate. Its validity period is not checked.
 */
export async function vcekProblem(
  bytes: Uint8Array,
  { wanted, chain, roots }: { wanted: VcekWanted; chain: Uint8Array | undefined; roots: readonly TrustedRoot[] },
): Promise<Problem> {
  const prepared = await prepareChain({ vek: bytes, chain, roots })
  const failed = prepared.checks.find(check => check.outcome !== 'pass')
  if (failed !== undefined) return `${failed.name}: ${failed.reason}`
  const { extensions, root } = prepared.found ?? {}
  if (root?.product !== wanted.product || extensions?.holder.kind !== 'vcek') return `not a VCEK of ${wanted.product}`
  if (!isSame(extensions.holder.hwId, hwIdOf(wanted.product, wanted.chipId))) return 'the VCEK of another chip'
  const { spl } = extensions
  return TCB_COMPONENTS.every(kind => spl[kind] === wanted.tcb[kind]) ? null : 'the VCEK of another TCB'
}

/** Checks that the chain is exactly the tree's intermediate and then the trusted ARK, which signed it. */
export async function chainProblem(
  bytes: Uint8Array,
  { root, tree }: { root: DecodedRoot; tree: Tree },
): Promise<Problem> {
  try {
    const [intermediate, ark, ...more] = derBlocks(bytes, 'CERTIFICATE', 'chain').map(decodeCertificate)
    if (intermediate === undefined || ark === undefined || more.length > 0) return 'chain: not two certificates'
    if (!isSame(ark.der, root.ark.der)) return 'chain: its second certificate is not the trusted ARK'
    const expected = tree === 'vcek' ? root.ask : root.asvk
    if (expected === null) return 'chain: the trusted root names no ASVK'
    if (!isSame(intermediate.subject, expected.subject)) return 'chain: its first certificate is another intermediate'
    return (await isSignedBy(intermediate, root.ark)) ? null : 'chain: the ARK did not sign its intermediate'
  } catch (error) {
    return reasonOf(error)
  }
}

/**
 * Checks that the CRL is signed by the trusted ARK and in force at this time. Verifiers check whether it revokes
 * anything.
 */
export async function crlProblem(
  bytes: Uint8Array,
  { root, nowMs }: { root: DecodedRoot; nowMs: number },
): Promise<Problem> {
  const prepared = await prepareCrl(bytes, root.ark)
  const check = checkRevocation(prepared, { authorities: [], asOfMs: nowMs, requireCrl: true })
  return check.outcome === 'pass' ? null : check.reason
}

function reasonOf(error: unknown): string {
  return error instanceof Malformed ? error.message : `could not be read: ${error}`
}
