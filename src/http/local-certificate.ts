// The certificate of the local authority, for the appliance's names, and the leaves of others. Effects: files.

import { X509Certificate } from 'node:crypto'
import { isIP, isIPv6 } from 'node:net'
import { join } from 'node:path'
import { iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { dayMs } from '../base/time.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { spkiOf } from '../linux/keys/spki.ts'
import { type Authority, openAuthority, type Replacement } from './authority.ts'
import {
  certificateNames,
  expiryWarnMs,
  type Leaves,
  type ServedCertificates,
  type Source,
  type TlsDeps,
} from './certificate-source.ts'
import { namesIn, readPair, type TlsPair } from './pair.ts'
import { type FormerNames, followNames, otherNames, writeNames } from './served-names.ts'

const renewIntervalMs = 3_600_000

/** Opens the local source. Throws Fault internal if the authority or the stored certificate cannot be used. */
export async function localSource(deps: TlsDeps): Promise<Source> {
  const { config, stateDir, clock } = deps
  const dir = join(stateDir, 'tls')
  // Key and chain share a file, so a crash cannot separate them.
  const file = join(dir, 'server.pem')
  ensureDir(dir, { mode: 0o700 })
  const all = certificateNames(config)
  const others = otherNames(config.tls.names, config.domain)
  const names = all.filter(name => !others.includes(name))
  const namesFile = join(dir, 'names.json')
  let former = followNames(namesFile, {
    own: names,
    all,
    served: servedNames(file),
    nowMs: clock.nowMs(),
    overlapMs: deps.isFresh === true ? 0 : config.tls.overlap_days * dayMs,
  })
  if (former !== null) tellOfFormer(former, deps)
  const permitted = [...new Set([...all, ...config.tls.announced_names, ...(former?.names ?? [])])]
  const opened = { kind: 'clients', stateDir, names: permitted, nowMs: clock.nowMs, random: deps.random } as const
  const authority = await openAuthority(opened)
  tellOfReplacement(authority, deps)
  const renew = async (): Promise<TlsPair> => {
    // Certificates by ACME are for this key, so it stays.
    const key = config.tls.acme.directory === '' ? null : storedKey(file)
    const pair = await issuePair(authority, key, { names, days: config.tls.validity_days })
    writeFileAtomic(file, `${pair.key}${pair.cert}`, { mode: 0o600 })
    return pair
  }
  const isDue = (pair: TlsPair): boolean => {
    const nowMs = clock.nowMs()
    const atEndOfAuthority = pair.notAfterMs >= authority.notAfterMs - 1000
    const left = pair.notAfterMs - nowMs
    // After the wall clock jumped back, the certificate is not yet valid.
    return pair.notBeforeMs > nowMs || left <= 0 || (left < config.tls.renew_before_days * dayMs && !atEndOfAuthority)
  }
  const certifyFor = (spki: Uint8Array, leafNames: readonly string[]) =>
    authority.certify(spki, leafNames, config.tls.validity_days)
  /** `own`: the leaf of the appliance's names, where there is one for this key. */
  const leaves = async (spki: Uint8Array, own?: string): Promise<Leaves> => {
    const leaf = own ?? (await certifyFor(spki, names))
    const named = await Promise.all(
      others.map(async serverName => ({ serverName, cert: await certifyFor(spki, [serverName]) })),
    )
    if (former === null) return { first: leaf, named }
    // Clients that know this host by an address send no name: they get a leaf that the root from before permits.
    const called = names.filter(name => isIP(name) === 0 && name !== 'localhost')
    const byName = called.map(serverName => ({ serverName, cert: leaf }))
    return { first: await certifyFor(spki, former.names), named: [...named, ...byName] }
  }
  const show = async (pair: TlsPair): Promise<ServedCertificates> => {
    const { first, named } = await leaves(spkiOf(pair.key), pair.cert)
    if (former === null) return { first: pair, named }
    const verdict = readPair(first, pair.key)
    if (!verdict.ok) throw new Fault('internal', `certificate of former names: ${verdict.reason}`)
    return { first: verdict.pair, named }
  }
  const stored = readStored(file, authority, names)
  return {
    kind: 'local',
    first: stored === null || isDue(stored) ? await renew() : stored,
    caFile: authority.caFile,
    authorityEndsMs: authority.notAfterMs,
    intervalMs: renewIntervalMs,
    // Renewal starts long before. So little time left means that renewal keeps failing or the authority itself ends.
    warnMs: Math.min(expiryWarnMs, (config.tls.renew_before_days * dayMs) / 2),
    authority: async () => authority,
    show,
    former: () => former,
    leaves: spki => leaves(spki),
    stamp: () => JSON.stringify([names, others, former, authority.caPem]),
    check: async ({ current }) => {
      const hasEnded = former !== null && former.endsAtMs <= clock.nowMs()
      if (hasEnded) {
        former = null
        writeNames(namesFile, { own: names, former })
      }
      return hasEnded || isDue(current) ? await renew() : null
    },
  }
}

const REPLACED = {
  unconstrained: 'the earlier one could sign for any name',
  names: 'the names of this appliance have changed; its key and its subject have not',
} as const satisfies Record<Replacement, string>

function tellOfReplacement({ replaced, caFile }: Authority, { log, onEvent, isFresh = false }: TlsDeps): void {
  if (replaced === null || isFresh) return
  const remedy =
    replaced === 'names'
      ? 'give clients the new ca_file to reach the new names; who holds the earlier one goes on by the names that it has'
      : 'give clients the new ca_file; who holds the earlier one, running instances included, may refuse this appliance'
  log.warn('certificate authority replaced', { reason: REPLACED[replaced], caFile, remedy })
  onEvent('tls.authority_replaced', { reason: REPLACED[replaced], ca_file: caFile })
}

function tellOfFormer({ names, endsAtMs }: FormerNames, { log, onEvent }: TlsDeps): void {
  const detail = { names: names.filter(name => isIP(name) === 0), until: iso(endsAtMs) }
  const remedy = 'give clients the new ca_file and the new names before then'
  log.warn('the names of before are still served', { ...detail, remedy })
  onEvent('tls.former_names', detail)
}

/** Names of the stored certificate; null without one. */
function servedNames(file: string): string[] | null {
  const text = readTextOrNull(file)
  const certAt = text?.indexOf('-----BEGIN CERTIFICATE-----') ?? -1
  if (text === null || certAt < 0) return null
  const verdict = readPair(text.slice(certAt), text.slice(0, certAt))
  return verdict.ok ? namesIn(verdict.pair.names) : null
}

async function issuePair(
  authority: Authority,
  key: string | null,
  { names, days }: { readonly names: readonly string[]; readonly days: number },
): Promise<TlsPair> {
  const issued =
    key === null ? await authority.issue(names, days) : { key, cert: await authority.certify(spkiOf(key), names, days) }
  const verdict = readPair(issued.cert, issued.key)
  if (!verdict.ok) throw new Fault('internal', `local certificate: ${verdict.reason}`)
  return verdict.pair
}

/** Null if there is none, or it cannot be read. */
function storedKey(file: string): string | null {
  const key = /-----BEGIN PRIVATE KEY-----[A-Za-z0-9+/=\s]+-----END PRIVATE KEY-----\n/.exec(readTextOrNull(file) ?? '')
  try {
    if (key === null) return null
    spkiOf(key[0])
    return key[0]
  } catch {
    return null
  }
}

/** Returns the certificate of an earlier start if this authority issued it for these names; otherwise null. */
function readStored(file: string, authority: Authority, names: readonly string[]): TlsPair | null {
  const text = readTextOrNull(file)
  if (text === null) return null
  const certAt = text.indexOf('-----BEGIN CERTIFICATE-----')
  const verdict = readPair(text.slice(Math.max(certAt, 0)), text.slice(0, Math.max(certAt, 0)))
  if (!verdict.ok || !isIssuedBy(verdict.pair, authority)) return null
  return sameNames(verdict.pair.names, names) ? verdict.pair : null
}

/** Whether this authority's key signed the leaf. */
function isIssuedBy(pair: TlsPair, authority: { readonly caPem: string }): boolean {
  const ca = new X509Certificate(authority.caPem)
  const leaf = new X509Certificate(pair.cert)
  return leaf.checkIssued(ca) && leaf.verify(ca.publicKey)
}

/** Whether a certificate has exactly these names, in any order. */
function sameNames(subjectAltName: string, names: readonly string[]): boolean {
  return canonical(namesIn(subjectAltName)) === canonical(names)
}

function canonical(names: readonly string[]): string {
  return [...new Set(names.map(canonicalName))].sort().join(' ')
}

/** IPv6 addresses have many spellings; the URL parser returns the canonical one. */
function canonicalName(name: string): string {
  return isIPv6(name) ? new URL(`http://[${name}]`).hostname : name
}
