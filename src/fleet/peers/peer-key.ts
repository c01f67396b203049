// The key with which this host authenticates to other hosts of its fleet, as server and as caller, with a self-signed
// certificate. Effects: two files in <stateDir>/peer, created at the first start.
//
// Backups exclude it: a reinstalled host creates a new one and publishes it.

import { createPrivateKey, createPublicKey, type KeyObject, sign, verify, X509Certificate } from 'node:crypto'
import { join } from 'node:path'
import { loadX509 } from '../../attest/x509/runtime.ts'
import { wrapFault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { dayMs } from '../../base/time.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'

export type PeerKey = {
  readonly hostId: string
  /** PEM. */
  readonly certificate: string
  /** PEM, PKCS #8. */
  readonly privateKey: string
  /** Signs with ECDSA and SHA-256 on P-256. Returns 64 bytes, r before s. */
  readonly sign: (message: Uint8Array) => Uint8Array
}

export type PeerKeyDeps = {
  readonly stateDir: string
  readonly hostId: string
  readonly nowMs: number
  readonly random: RandomBytes
}

const validityDays = 3_653
/** A start within this time before its expiry creates another certificate for the same key. */
const renewBeforeMs = 366 * dayMs
/** How far clocks of other hosts may be behind this one. */
const backdateMs = dayMs

const P256 = { name: 'ECDSA', namedCurve: 'P-256' } as const

/** Returns the name in a host's certificate. It never resolves (RFC 6761, section 6.4). */
export function peerName(hostId: string): string {
  return `${hostId}.peer.invalid`
}

/** Opens or creates key and certificate. Fault internal if a file is unreadable or cannot be written. */
export async function openPeerKey(deps: PeerKeyDeps): Promise<PeerKey> {
  const { stateDir, hostId, nowMs } = deps
  const { dir, keyFile, certificateFile } = filesOf(stateDir)
  ensureDir(dir, { mode: 0o700 })
  if (readTextOrNull(keyFile) === null) writeFileAtomic(keyFile, await newKeyPem(), { mode: 0o600 })
  const key = readKey(keyFile)
  if (!isInOrder(readTextOrNull(certificateFile), key, { hostId, nowMs })) {
    writeFileAtomic(certificateFile, await selfSign(key, deps), { mode: 0o600 })
  }
  return ofFiles(hostId, key, readTextOrNull(certificateFile) ?? '')
}

/** Reads key and certificate; null if this host has not created them yet. Fault internal if a file is unreadable. */
export function readPeerKey(stateDir: string, hostId: string): PeerKey | null {
  const { keyFile, certificateFile } = filesOf(stateDir)
  const certificate = readTextOrNull(certificateFile)
  return certificate === null ? null : ofFiles(hostId, readKey(keyFile), certificate)
}

/** Reports whether the key of a certificate (PEM) signed the message. False also if the text is not a certificate. */
export function isSignedBy(certificate: string, message: Uint8Array, signature: Uint8Array): boolean {
  try {
    const { publicKey } = new X509Certificate(certificate)
    return verify('sha256', message, { key: publicKey, dsaEncoding: 'ieee-p1363' }, signature)
  } catch {
    return false
  }
}

function filesOf(stateDir: string) {
  const dir = join(stateDir, 'peer')
  return { dir, keyFile: join(dir, 'key.pem'), certificateFile: join(dir, 'certificate.pem') }
}

function ofFiles(hostId: string, key: KeyObject, certificate: string): PeerKey {
  return {
    hostId,
    certificate,
    privateKey: key.export({ format: 'pem', type: 'pkcs8' }).toString(),
    sign: message => new Uint8Array(sign('sha256', message, { key, dsaEncoding: 'ieee-p1363' })),
  }
}

function readKey(file: string): KeyObject {
  try {
    return createPrivateKey(readTextOrNull(file) ?? '')
  } catch (error) {
    throw wrapFault(error, `read ${file}, the key of this host for others of its fleet; remove it to get another one`)
  }
}

function isInOrder(
  pem: string | null,
  key: KeyObject,
  { hostId, nowMs }: Pick<PeerKeyDeps, 'hostId' | 'nowMs'>,
): boolean {
  if (pem === null) return false
  try {
    const certificate = new X509Certificate(pem)
    const isCurrent =
      Date.parse(certificate.validFrom) <= nowMs && Date.parse(certificate.validTo) > nowMs + renewBeforeMs
    return isCurrent && certificate.checkPrivateKey(key) && certificate.checkHost(peerName(hostId)) !== undefined
  } catch {
    return false
  }
}

async function newKeyPem(): Promise<string> {
  const { PemConverter } = await loadX509()
  const { privateKey } = await crypto.subtle.generateKey(P256, true, ['sign', 'verify'])
  return `${PemConverter.encode(await crypto.subtle.exportKey('pkcs8', privateKey), 'PRIVATE KEY')}\n`
}

/** Creates a certificate in the profile of a server (RFC 5280, section 4.2), not of an authority. */
async function selfSign(key: KeyObject, { hostId, nowMs, random }: PeerKeyDeps): Promise<string> {
  const x509 = await loadX509()
  const pkcs8 = new Uint8Array(key.export({ format: 'der', type: 'pkcs8' }))
  const spki = new Uint8Array(createPublicKey(key).export({ format: 'der', type: 'spki' }))
  const keys = {
    privateKey: await crypto.subtle.importKey('pkcs8', pkcs8, P256, false, ['sign']),
    publicKey: await crypto.subtle.importKey('spki', spki, P256, true, ['verify']),
  }
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    // Positive, at most 16 octets, no leading zero (RFC 5280, section 4.1.2.2).
    serialNumber: `40${random(15).toHex()}`,
    name: 'CN=strongroom peer',
    notBefore: wholeSecond(nowMs - backdateMs),
    notAfter: wholeSecond(nowMs + validityDays * dayMs),
    keys,
    signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension([{ type: 'dns', value: peerName(hostId) }]),
    ],
  })
  return `${certificate.toString('pem')}\n`
}

/** Rounds down: X.509 times have no fractions. */
function wholeSecond(ms: number): Date {
  return new Date(Math.floor(ms / 1000) * 1000)
}
