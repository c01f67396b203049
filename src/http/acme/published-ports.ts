// Ports that owners of instances publish: the VM names them at each poll, the firewall opens, and the VM gets what the
// ACME server issues. Effects: the firewall, the VMs, orders of certificates.

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
  /** Forgets the certificates of all names of which this is true. */
  readonly forget: (isGone: (name: string) => boolean) => void
  /**
   * Opens the public port of a VM, whose answers may use so many bytes in all; 0 closes it. Returns whether they are
   * used up.
   */
  readonly open: (vmId: string, egressBytes: number) => Promise<boolean>
  readonly handCertificate: (vmId: string, certificate: IssuedCertificate, timeoutMs: number) => Promise<void>
  readonly log: Logger
}

type Owned = {
  readonly id: string
  readonly vmId: string | null
  readonly hostname: string
  readonly organizationId: string
}

export type PublishedPorts = {
  /** Takes the names of a VM at each poll. Its work goes on by itself, and never rejects. */
  readonly note: (instance: Owned, asked: readonly CertificateRequest[]) => void
  /** Takes the host names of all instances of this host: certificates of others are forgotten. */
  readonly noteLiving: (hostnames: ReadonlySet<string>) => void
}

const handTimeoutMs = 30_000
const usedUp =
  'answers have used up their part of the egress cap: `strongroom publish` the port again with a greater --egress'

export function createPublishedPorts(deps: PublishedDeps): PublishedPorts {
  const busy = new Set<string>()
  /** VMs by host name to which this process has reported that their part of the cap is not used up. */
  const informed = new Map<string, string>()
  /** A poll may have judged by the sum before the owner raised it, and a restart forgets: the next takes it back. */
  const reportUse = async (vmId: string, hostname: string, isUsedUp: boolean, asked: readonly CertificateRequest[]) => {
    if (isUsedUp) informed.delete(hostname)
    else if (asked.length === 0 || informed.get(hostname) === vmId) return
    // Problems of ports without a certificate are others.
    const concerned = isUsedUp ? asked : asked.filter(({ chainSha256 }) => chainSha256 !== null)
    for (const { name } of concerned) {
      await deps.handCertificate(vmId, { name, chain: null, problem: isUsedUp ? usedUp : null }, handTimeoutMs)
    }
    if (!isUsedUp) informed.set(hostname, vmId)
  }
  const once = (at: string, instance: Owned, work: () => Promise<void>) => {
    if (busy.has(at)) return
    busy.add(at)
    work()
      .catch(error => {
        deps.log.warn('a published port waits', { instance: instance.id, reason: messageOf(error) })
      })
      .finally(() => busy.delete(at))
  }
  return {
    note: (instance, asked) => {
      const { vmId, hostname } = instance
      if (vmId === null) return
      const names = new Set(asked.map(({ name }) => `${name}.${hostname}`))
      deps.forget(name => hostnameOf(name) === hostname && !names.has(name))
      once(vmId, instance, async () => {
        const sum = asked.reduce((sum, { egressBytes }) => sum + egressBytes, 0)
        await reportUse(vmId, hostname, await deps.open(vmId, sum), asked)
      })
      for (const request of asked) {
        once(`${vmId} ${request.name}`, instance, () => follow(deps, { ...instance, vmId }, request))
      }
    },
    noteLiving: hostnames => {
      deps.forget(name => !hostnames.has(hostnameOf(name)))
      for (const hostname of informed.keys()) if (!hostnames.has(hostname)) informed.delete(hostname)
    },
  }
}

function hostnameOf(name: string): string {
  return name.slice(name.indexOf('.') + 1)
}

async function follow(
  { certificateFor, handCertificate }: PublishedDeps,
  { vmId, hostname, organizationId }: Owned & { readonly vmId: string },
  { name, csr, chainSha256 }: CertificateRequest,
): Promise<void> {
  const bytes = fromBase64Url(csr)
  if (bytes === null) return
  const issued = await certificateFor({ name: `${name}.${hostname}`, organizationId, csr: bytes })
  const isKnown = issued.chain !== null && createHash('sha256').update(issued.chain).digest('hex') === chainSha256
  // With the chain that it has, a VM goes on until a newer one is there.
  if (isKnown || (issued.chain === null && (issued.problem === null || chainSha256 !== null))) return
  await handCertificate(vmId, { name, ...issued }, handTimeoutMs)
}
