// Certificates by ACME, as configured. Effects: files.

import { join } from 'node:path'
import { acmeNames, challengeFor } from '../../config/acme.ts'
import { ensureDir } from '../../linux/files.ts'
import { spkiOf, spkiSha256Of } from '../../linux/keys/spki.ts'
import { createOutgoing } from '../../linux/net/outgoing.ts'
import type { TlsDeps } from '../certificate-source.ts'
import { AcmeCertificates } from './acme-certificates.ts'
import { acmeServer, openAccount } from './order.ts'
import { openRenewalInfo } from './renewal-info.ts'
import { certificateRequest } from './request.ts'

const pollMs = 1_000

/** `key`: PEM, of this host. Fault config.file: a file that `tls.acme` names cannot be read. */
export function openAcme({ config, stateDir, clock, random, log, onEvent }: TlsDeps, key: string): AcmeCertificates {
  const dir = join(stateDir, 'acme')
  const outgoing = createOutgoing(config.network.proxy)
  ensureDir(dir, { mode: 0o700 })
  return new AcmeCertificates({
    dir,
    names: acmeNames(config),
    publishedPerWeek: config.tls.acme.published_per_week,
    challengeFor: name => challengeFor(name, config),
    host: { spkiSha256: spkiSha256Of(spkiOf(key)), request: name => certificateRequest(name, key) },
    placeOrder: openAccount({ dir, config: config.tls.acme, outgoing, clock, pollMs }),
    askRenewal: openRenewalInfo(acmeServer(config.tls.acme, outgoing, clock), config.tls.acme.directory),
    clock,
    random,
    log,
    onEvent,
  })
}
