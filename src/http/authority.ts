// The appliance's two certificate authorities: each is a P-256 root, made on first start, that signs certificates the
// daemon serves. Effects: two files each in <stateDir>/ca (for clients) and <stateDir>/guest-ca (for instances).
// Profile: RFC 5280 4.1 and 4.2, strict enough for `openssl verify -x509_strict`.
//
// Critical name constraints (4.2.1.10) limit each root to the appliance's names: a stolen key can sign for no other
// DNS name. They do not limit common names, which some runtimes fall back to. So instances trust the guests'
// authority for one connection alone, that to a gateway which nothing else authenticates. A root of an earlier
// release without constraints is dropped with its key. When the names change, the same key signs a new root with the
// same subject: clients that trust the earlier root keep working while it permits every served name.

import { createPublicKey, X509Certificate as NodeCertificate } from 'node:crypto'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { AsnConvert } from '@peculiar/asn1-schema'
import {
  GeneralName,
  GeneralSubtree,
  GeneralSubtrees,
  id_ce_nameConstraints,
  NameConstraints,
} from '@peculiar/asn1-x509'
import type { Extension, PublicKey, X509Certificate } from '@peculiar/x509'
import { loadX509 } from '../attest/x509/runtime.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import { dayMs } from '../base/time.ts'
import { ensureDir, writeFileAtomic } from '../linux/files.ts'

const x509 = await loadX509()

const authorityYears = 10
/** Clients' clocks may be behind ours. */
const backdateMs = 3_600_000

export type Authority = {
  /** Public; clients must trust it. */
  readonly caFile: string
  readonly caPem: string
  readonly notAfterMs: number
  /** Why this start replaced an earlier root; null if it did not. Clients must then accept the new root. */
  readonly replaced: Replacement | null
  /** A fresh key and certificate for these DNS names and IP addresses. Expires no later than the authority. */
  readonly issue: (names: readonly string[], validityDays: number) => Promise<IssuedPair>
  /** A certificate, as PEM, for an existing key. `spki`: SubjectPublicKeyInfo, DER. */
  readonly certify: (spki: Uint8Array, names: readonly string[], validityDays: number) => Promise<string>
}

export const AUTHORITIES = {
  clients: { directory: 'ca', title: 'Strongroom local CA', addresses: 'any' },
  guests: { directory: 'guest-ca', title: 'Strongroom guest CA', addresses: 'none' },
} as const satisfies Record<string, { directory: string; title: string; addresses: 'any' | 'none' }>

/** `unconstrained`: the earlier root could sign for any name. `names`: the names of this appliance have changed. */
export type Replacement = 'unconstrained' | 'names'

export type IssuedPair = { readonly cert: string; readonly key: string }

export type AuthorityDeps = {
  readonly kind: keyof typeof AUTHORITIES
  readonly stateDir: string
  /** DNS names and IP addresses of the appliance. The authority can sign only for these names and those below them. */
  readonly names: readonly string[]
  readonly nowMs: () => number
  readonly random: RandomBytes
}

/** Opens or makes the authority of a state directory. Fault internal: its files do not match or cannot be written. */
export async function openAuthority(deps: AuthorityDeps): Promise<Authority> {
  const { directory, title, addresses } = AUTHORITIES[deps.kind]
  const dir = join(deps.stateDir, directory)
  const files = { keyFile: join(dir, 'ca.key'), caFile: join(dir, 'ca.pem') }
  const { keyFile, caFile } = files
  ensureDir(dir, { mode: 0o755 })
  if (!existsSync(keyFile) && existsSync(caFile)) {
    throw new Fault(
      'internal',
      `${caFile} is there without ${keyFile}; restore the key, or remove the file to get a new authority, which clients must then trust`,
    )
  }
  const constraints = constraintsOf(deps.names, addresses)
  const earlier = existsSync(caFile) ? readAuthority(readFileSync(caFile, 'utf8'), files) : null
  const replaced = earlier === null ? null : whyReplace(earlier, constraints)
  if (replaced === 'unconstrained') {
    // Certificate first: after a crash in between, the next start makes a constrained root for the key that is left.
    rmSync(caFile)
    rmSync(keyFile)
  }
  // Key first: after a crash in between, the next start finds a key that has signed nothing.
  if (!existsSync(keyFile)) writeFileAtomic(keyFile, await newKeyPem(), { mode: 0o600 })
  const keys = await importKeys(readFileSync(keyFile, 'utf8'), keyFile)
  if (earlier === null || replaced !== null) {
    // Each root has a subject of its own, so two appliances' roots differ in one trust store.
    const name = replaced === 'names' && earlier !== null ? earlier.subject : `CN=${title} ${deps.random(4).toHex()}`
    writeFileAtomic(caFile, await selfSign(keys, { name, constraints }, deps), { mode: 0o644 })
  }
  const caPem = readFileSync(caFile, 'utf8')
  const ca = readAuthority(caPem, files)
  const notAfterMs = ca.notAfter.getTime()
  const certify: Authority['certify'] = async (spki, names, validityDays) => {
    const nowMs = deps.nowMs()
    const publicKey = new x509.PublicKey(Uint8Array.from(spki))
    const leaf = await x509.X509CertificateGenerator.create({
      serialNumber: serialOf(deps.random),
      subject: 'CN=strongroom',
      issuer: ca.subject,
      notBefore: wholeSecond(Math.max(nowMs - backdateMs, ca.notBefore.getTime())),
      notAfter: wholeSecond(Math.min(nowMs + validityDays * dayMs, notAfterMs)),
      signingKey: keys.privateKey,
      publicKey,
      signingAlgorithm: SIGNING,
      extensions: await leafExtensions(names, { ca, publicKey }),
    })
    return `${leaf.toString('pem')}\n`
  }
  return {
    caFile,
    caPem,
    notAfterMs,
    replaced,
    certify,
    issue: async (names, validityDays) => {
      const leafKeys = await crypto.subtle.generateKey(P256, true, ['sign', 'verify'])
      const spki = await crypto.subtle.exportKey('spki', leafKeys.publicKey)
      const key = await crypto.subtle.exportKey('pkcs8', leafKeys.privateKey)
      const cert = await certify(new Uint8Array(spki), names, validityDays)
      return { cert, key: `${x509.PemConverter.encode(key, 'PRIVATE KEY')}\n` }
    },
  }
}

const P256 = { name: 'ECDSA', namedCurve: 'P-256' } as const
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' } as const

async function newKeyPem(): Promise<string> {
  const { privateKey } = await crypto.subtle.generateKey(P256, true, ['sign', 'verify'])
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', privateKey), 'PRIVATE KEY')}\n`
}

async function importKeys(pem: string, file: string): Promise<CryptoKeyPair> {
  try {
    const spki = createPublicKey(pem).export({ format: 'der', type: 'spki' })
    const [pkcs8] = x509.PemConverter.decode(pem)
    if (pkcs8 === undefined) throw new Error('no PEM block')
    return {
      privateKey: await crypto.subtle.importKey('pkcs8', pkcs8, P256, false, ['sign']),
      publicKey: await crypto.subtle.importKey('spki', new Uint8Array(spki), P256, true, ['verify']),
    }
  } catch (error) {
    throw wrapFault(error, `read ${file}, the key of the local authority`)
  }
}

function readAuthority(pem: string, { caFile, keyFile }: { caFile: string; keyFile: string }): X509Certificate {
  try {
    const key = createPublicKey(readFileSync(keyFile, 'utf8'))
    if (!new NodeCertificate(pem).publicKey.equals(key)) throw new Error(`does not belong to ${keyFile}`)
    return new x509.X509Certificate(pem)
  } catch (error) {
    throw wrapFault(error, `read ${caFile}, the certificate of the local authority`)
  }
}

type Root = { readonly name: string; readonly constraints: Extension }

async function selfSign(keys: CryptoKeyPair, { name, constraints }: Root, deps: AuthorityDeps): Promise<string> {
  const nowMs = deps.nowMs()
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: serialOf(deps.random),
    name,
    notBefore: wholeSecond(nowMs - backdateMs),
    notAfter: wholeSecond(nowMs + authorityYears * 365.25 * dayMs),
    keys,
    signingAlgorithm: SIGNING,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      constraints,
    ],
  })
  return `${ca.toString('pem')}\n`
}

/**
 * RFC 5280 4.2.1.10. A DNS name permits all names below it; `addresses: 'none'` excludes every address. Single
 * addresses cannot be permitted: below a root that constrains addresses BoringSSL, and so Bun, refuses every
 * certificate with an address (X509_V_ERR_UNSUPPORTED_CONSTRAINT_TYPE). Clients know the appliance by addresses too, so
 * their root leaves addresses unconstrained.
 */
function constraintsOf(names: readonly string[], addresses: 'any' | 'none'): Extension {
  const domains = new Set(names.filter(name => isIP(name) === 0).map(name => name.replace(/^\*\./, '')))
  // Without any entry, DNS names would be unconstrained.
  if (domains.size === 0) throw new Fault('internal', 'an authority must be held to at least one DNS name')
  const isBelowAnother = (name: string) => [...domains].some(domain => name.endsWith(`.${domain}`))
  const permitted = [...domains].filter(name => !isBelowAnother(name)).sort()
  const subtrees = (all: readonly Partial<GeneralName>[]) =>
    new GeneralSubtrees(all.map(base => new GeneralSubtree({ base: new GeneralName(base) })))
  const constraints = new NameConstraints({
    permittedSubtrees: subtrees(permitted.map(dNSName => ({ dNSName }))),
    ...(addresses === 'any' ? {} : { excludedSubtrees: subtrees(everyAddress.map(iPAddress => ({ iPAddress }))) }),
  })
  return new x509.Extension(id_ce_nameConstraints, true, AsnConvert.serialize(constraints))
}

const everyAddress = ['0.0.0.0/0', '::/0']

function whyReplace(earlier: X509Certificate, constraints: Extension): Replacement | null {
  const found = earlier.getExtension(id_ce_nameConstraints)
  if (found === null) return 'unconstrained'
  return Buffer.from(found.rawData).equals(Buffer.from(constraints.rawData)) ? null : 'names'
}

async function leafExtensions(
  names: readonly string[],
  { ca, publicKey }: { ca: X509Certificate; publicKey: PublicKey },
): Promise<Extension[]> {
  return [
    new x509.BasicConstraintsExtension(false, undefined, true),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
    new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
    new x509.SubjectAlternativeNameExtension(
      names.map(name => ({ type: isIP(name) === 0 ? ('dns' as const) : ('ip' as const), value: name })),
    ),
    await x509.AuthorityKeyIdentifierExtension.create(ca.publicKey),
    await x509.SubjectKeyIdentifierExtension.create(publicKey),
  ]
}

/** Positive and 127 bits long: at most 16 octets, and never a leading zero (RFC 5280 4.1.2.2). */
function serialOf(random: RandomBytes): string {
  const bytes = random(16)
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40
  return bytes.toHex()
}

/** X.509 times have no fractions. */
function wholeSecond(ms: number): Date {
  return new Date(Math.floor(ms / 1000) * 1000)
}
