// Certificates for ports that owners of instances publish: the VM names them, and gets what the ACME server issues.
// Effects: the VMs, orders of certificates.

import { createHash } from 'node:crypto'
import { fromBase64Url } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { IssuedCertificate } from '../../contract/vm/agent.ts'
import type { CertificateRequest } from '../../contract/vm/agent-responses.ts'

export type PublishedDeps = {
  /** Returns the newest for a name and key; waits a while for a first one. */
  readonly certificateFor: (request: {
    readonly name: string
    readonly organizationId: string
    readonly csr: Uint8Array
  }) => Promise<Omit<IssuedCertificate, 'name'>>
  readonly handCertificate: (vmId: string, certificate: IssuedCertificate, timeoutMs: number) => Promise<void>
  readonly log: Logger
}

type Owned = {
  readonly id: string
  readonly vmId: string | null
  readonly hostname: string
  readonly organizationId: string
}

const handTimeoutMs = 30_000

/** Returns the function that takes the names of a VM at each poll. Its work goes on by itself, and never rejects. */
export function createPublishedPorts(
  deps: PublishedDeps,
): (instance: Owned, asked: readonly CertificateRequest[]) => void {
  const busy = new Set<string>()
  return (instance, asked) => {
    for (const request of asked) {
      const at = `${instance.vmId} ${request.name}`
      if (busy.has(at)) continue
      busy.add(at)
      follow(deps, instance, request)
        .catch(error => {
          deps.log.warn('a published port got no certificate', { instance: instance.id, reason: messageOf(error) })
        })
        .finally(() => busy.delete(at))
    }
  }
}

async function follow(
  { certificateFor, handCertificate }: PublishedDeps,
  { vmId, hostname, organizationId }: Owned,
  { name, csr, chainSha256 }: CertificateRequest,
): Promise<void> {
  const bytes = fromBase64Url(csr)
  if (vmId === null || bytes === null) return
  const issued = await certificateFor({ name: `${name}.${hostname}`, organizationId, csr: bytes })
  const isKnown = issued.chain !== null && createHash('sha256').update(issued.chain).digest('hex') === chainSha256
  // With the chain that it has, a VM goes on until a newer one is there.
  if (isKnown || (issued.chain === null && (issued.problem === null || chainSha256 !== null))) return
  await handCertificate(vmId, { name, ...issued }, handTimeoutMs)
}
