// Certificates by ACME as the configuration wants them. Effects: files.

import { createPrivateKey, webcrypto } from 'node:crypto'
import { join } from 'node:path'
import { acmeNames, challengeFor } from '../../config/acme.ts'
import { ensureDir } from '../../linux/files.ts'
import type { TlsDeps } from '../certificate-source.ts'
import { spkiOf, spkiSha256Of } from '../pair.ts'
import { AcmeCertificates } from './acme-certificates.ts'
import { openAccount } from './order.ts'
import { certificateRequest } from './request.ts'

const pollMs = 1_000

/** `key`: PEM, of this host. Fault config.file: a file that `tls.acme` names cannot be read. */
export function openAcme({ config, stateDir, clock, random, log, onEvent }: TlsDeps, key: string): AcmeCertificates {
  const dir = join(stateDir, 'acme')
  ensureDir(dir, { mode: 0o700 })
  const spki = spkiOf(key)
  return new AcmeCertificates({
    dir,
    names: acmeNames(config),
    challengeFor: name => challengeFor(name, config),
    host: { spkiSha256: spkiSha256Of(spki), request: name => requestFor(name, key, spki) },
    placeOrder: openAccount({ dir, config: config.tls.acme, clock, pollMs }),
    clock,
    random,
    log,
    onEvent,
  })
}

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const

/** PKCS #10, DER, for one name. */
async function requestFor(name: string, key: string, spki: Uint8Array): Promise<Uint8Array> {
  const pkcs8 = createPrivateKey(key).export({ format: 'der', type: 'pkcs8' })
  const keys = {
    privateKey: await webcrypto.subtle.importKey('pkcs8', new Uint8Array(pkcs8), algorithm, false, ['sign']),
    publicKey: await webcrypto.subtle.importKey('spki', new Uint8Array(spki), algorithm, true, ['verify']),
  }
  return certificateRequest(name, keys)
}
