// The authorities of this VM, one for each host that has secrets, and the files that programs trust. Effects: files,
// randomness.
//
// A host's authority stays as long as the host has a secret: programs that run keep their connections. A broker that
// starts again makes new ones.

import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { RandomBytes } from '../../base/ids.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import { certifyHost, type HostCertificate } from './certificates.ts'

export type Authority = {
  /** Certifies exactly these hosts, and writes the files. */
  readonly certify: (hosts: readonly string[]) => void
  /** Null for a host without secrets. */
  readonly certificateOf: (host: string) => HostCertificate | null
}

export type AuthorityDeps = {
  /** Everyone may read it; the broker writes there. */
  readonly directory: string
  /** File with the system's roots, PEM. */
  readonly systemRoots: string
  readonly nowMs: () => number
  readonly random: RandomBytes
}

/** Names of the files: the authorities alone, and the system's roots before them. */
export const authorityFiles = { own: 'authority.pem', all: 'roots.pem' } as const

export function createAuthority({ directory, systemRoots, nowMs, random }: AuthorityDeps): Authority {
  let certificates: ReadonlyMap<string, HostCertificate> = new Map()
  return {
    certify: hosts => {
      const unique = [...new Set(hosts)].toSorted()
      certificates = new Map(
        unique.map(host => [host, certificates.get(host) ?? certifyHost(host, { nowMs: nowMs(), random })]),
      )
      const own = [...certificates].map(([host, { authority }]) => `# ${host}\n${authority}`).join('')
      const roots = readFileSync(systemRoots, 'utf8')
      mkdirSync(directory, { recursive: true, mode: 0o755 })
      writeFileAtomic(join(directory, authorityFiles.own), own, { mode: 0o644 })
      writeFileAtomic(join(directory, authorityFiles.all), `${roots.trimEnd()}\n${own}`, { mode: 0o644 })
    },
    certificateOf: host => certificates.get(host) ?? null,
  }
}
