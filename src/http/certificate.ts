// The certificate in service: the operator's files if configured, else one from the local authority. Effects: files,
// timer. A pair that cannot be used never replaces a working one: the old pair stays; log and journal get the reason.

import { createPublicKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { loadX509 } from '../attest/x509/runtime.ts'
import { type Clock, iso } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { createSerial } from '../base/work/serial.ts'
import { sweepLater } from '../base/work/sweep.ts'
import type { CERTIFICATE_NAMES } from '../contract/admin/admin.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { type Authority, openAuthority, type Replacement } from './authority.ts'
import {
  certificateNames,
  expiryWarnMs,
  type Leaves,
  type Shown,
  type Source,
  type TlsDeps,
} from './certificate-source.ts'
import { operatorSource } from './operator-certificate.ts'
import { isIssuedBy, type NamedCertificate, namesIn, readPair, sameNames, type TlsPair } from './pair.ts'
import { type FormerNames, followNames, otherNames, writeNames } from './served-names.ts'

const dayMs = 86_400_000
const renewIntervalMs = 3_600_000

/**
 * Faults at start: config.file (the operator's files cannot be used), internal (the authority cannot). Later failures
 * keep the working pair and throw nothing.
 */
export async function createTls(deps: TlsDeps): Promise<Tls> {
  const { config, stateDir, clock, random } = deps
  const source = config.tls.certificate_file === '' ? await localSource(deps) : operatorSource(deps)
  const names = [guestGatewayName]
  const guests = await openAuthority({ kind: 'guests', stateDir, names, nowMs: clock.nowMs, random })
  const guest = await certifyGuest(guests, source.first, clock)
  return new Tls({ source, guests, guest, shown: await source.show(source.first) }, deps)
}

/** Certificates for the key of a gateway VM, as PEM. */
export type GatewayChains = {
  readonly clients: string
  readonly guests: string
  /** Only by name. */
  readonly named?: NamedCertificate[]
}

type GuestCertificate = { readonly cert: string; readonly notBeforeMs: number; readonly notAfterMs: number }

/** Made at every start and useful to nobody else, so it may be valid for long. */
const guestValidityDays = 365
const guestRenewBeforeMs = 90 * dayMs

/** For the key of the pair in service, because receipts name one key for all connections. */
async function certifyGuest(guests: Authority, { key }: TlsPair, clock: Clock): Promise<GuestCertificate> {
  const spki = createPublicKey(key).export({ format: 'der', type: 'spki' })
  const cert = await guests.certify(spki, [guestGatewayName], guestValidityDays)
  const { validFrom, validTo } = new X509Certificate(cert)
  return { cert, notBeforeMs: Math.min(Date.parse(validFrom), clock.nowMs()), notAfterMs: Date.parse(validTo) }
}

function isGuestDue({ notBeforeMs, notAfterMs }: GuestCertificate, nowMs: number): boolean {
  return notBeforeMs > nowMs || notAfterMs - nowMs < guestRenewBeforeMs
}

export type { Tls }

class Tls {
  readonly source: 'local' | 'operator'
  /** The authority that clients must trust; null while the operator's own certificate is served. */
  readonly caFile: string | null
  /** The authority that instances trust; they reach the gateway as `guestGatewayName`. */
  readonly guestCaPem: string
  readonly #source: Source
  readonly #deps: TlsDeps
  readonly #guests: Authority
  readonly #listeners: (() => void)[] = []
  readonly #stopping = new AbortController()
  /** Serializes checks: a SIGHUP during a renewal waits. */
  readonly #checks = createSerial()
  #pair: TlsPair
  #guest: GuestCertificate
  #shown: Shown
  #warnedAtMs = Number.NEGATIVE_INFINITY

  constructor(parts: { source: Source; guests: Authority; guest: GuestCertificate; shown: Shown }, deps: TlsDeps) {
    const { source, guests, guest, shown } = parts
    this.source = source.kind
    this.caFile = source.caFile
    this.guestCaPem = guests.caPem
    this.#source = source
    this.#guests = guests
    this.#guest = guest
    this.#shown = shown
    this.#deps = deps
    this.#pair = source.first
    this.#warnOfExpiry()
    void this.#checkRepeatedly()
  }

  /** For clients that send no name, or one that `named` has not. */
  current(): TlsPair {
    return this.#shown.first
  }

  /** Certificates of other names, for the same key. */
  named(): readonly NamedCertificate[] {
    return this.#shown.named
  }

  /** Names from before a change of the domain, which are still served; null: none. */
  former(): FormerNames | null {
    return this.#source.former()
  }

  /** When each certificate of this appliance ends. Nothing is known here of the authority of the operator's own. */
  expiries(): { readonly name: (typeof CERTIFICATE_NAMES)[number]; readonly notAfterMs: number }[] {
    const { authorityEndsMs } = this.#source
    return [
      { name: 'server', notAfterMs: this.#pair.notAfterMs },
      ...(authorityEndsMs === null ? [] : [{ name: 'authority' as const, notAfterMs: authorityEndsMs }]),
      { name: 'guest', notAfterMs: this.#guest.notAfterMs },
      { name: 'guest_authority', notAfterMs: this.#guests.notAfterMs },
    ]
  }

  /** For connections of instances: PEM of a certificate for the same key, by the authority that instances trust. */
  guestCertificate(): string {
    return this.#guest.cert
  }

  /**
   * Certificates by this appliance's authorities, for clients and for instances, for a key that stays in its VM. `csr`:
   * PKCS #10, DER; only its key counts.
   * Without `byName` one certificate has all names. Fault invalid_request: malformed, or not signed by its key.
   */
  async certify(csr: Uint8Array, { byName }: { readonly byName: boolean }): Promise<GatewayChains> {
    const { config } = this.#deps
    const spki = await requestedKey(csr)
    const guests = await this.#guests.certify(spki, [guestGatewayName], config.tls.validity_days)
    const leaves = byName ? await this.#source.leaves(spki) : null
    if (leaves !== null && charsOf(leaves) <= namedChars)
      return { clients: leaves.first, guests, named: [...leaves.named] }
    const clients = await this.#source.authority()
    return { clients: await clients.certify(spki, certificateNames(config), config.tls.validity_days), guests }
  }

  /** Calls `listener` after every change; its exceptions are logged. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** For SIGHUP: reads the operator's files again, or renews the local certificate if due. Never throws. */
  reload(): Promise<void> {
    return this.#check({ forced: true })
  }

  stop(): void {
    this.#stopping.abort()
  }

  async #checkRepeatedly(): Promise<void> {
    const { signal } = this.#stopping
    const { intervalMs } = this.#source
    await sweepLater({ clock: this.#deps.clock, intervalMs, signal }, () => this.#check({ forced: false }))
  }

  #check({ forced }: { forced: boolean }): Promise<void> {
    const { log, onEvent } = this.#deps
    return this.#checks.run(async () => {
      try {
        const next = await this.#source.check({ current: this.#pair, forced })
        if (next !== null || isGuestDue(this.#guest, this.#deps.clock.nowMs())) {
          const pair = next ?? this.#pair
          const guest = await certifyGuest(this.#guests, pair, this.#deps.clock)
          this.#replace(pair, guest, await this.#source.show(pair))
        }
        this.#warnOfExpiry()
      } catch (error) {
        log.error('certificate not renewed', { error })
        onEvent('tls.refused', { reason: messageOf(error) })
      }
    })
  }

  #replace(next: TlsPair, guest: GuestCertificate, shown: Shown): void {
    const { log, onEvent, clock } = this.#deps
    const { fingerprint, key, cert } = this.#pair
    const isSame = next.fingerprint === fingerprint && next.key === key && next.cert === cert
    if (isSame && !isGuestDue(this.#guest, clock.nowMs())) return
    this.#guest = guest
    this.#shown = shown
    if (!isSame) {
      this.#pair = next
      this.#warnedAtMs = Number.NEGATIVE_INFINITY
      const detail = { fingerprint: next.fingerprint, expires_at: iso(next.notAfterMs) }
      log.info('certificate changed', detail)
      onEvent('tls.changed', detail)
    }
    for (const listener of this.#listeners) {
      try {
        listener()
      } catch (error) {
        log.error('a listener does not serve the new certificate', { error })
      }
    }
  }

  /** Once a day while the certificate is near its end. */
  #warnOfExpiry(): void {
    const { clock, log, onEvent } = this.#deps
    const { notAfterMs } = this.#pair
    const nowMs = clock.nowMs()
    if (notAfterMs - nowMs > this.#source.warnMs || Math.abs(nowMs - this.#warnedAtMs) < dayMs) return
    this.#warnedAtMs = nowMs
    const detail = { expires_at: iso(notAfterMs), expired: notAfterMs <= nowMs }
    log.warn('certificate expires', detail)
    onEvent('tls.expiring', detail)
  }
}

async function localSource(deps: TlsDeps): Promise<Source> {
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
    overlapMs: config.tls.overlap_days * dayMs,
  })
  if (former !== null) tellOfFormer(former, deps)
  const permitted = [...new Set([...all, ...config.tls.announced_names, ...(former?.names ?? [])])]
  const opened = { kind: 'clients', stateDir, names: permitted, nowMs: clock.nowMs, random: deps.random } as const
  const authority = await openAuthority(opened)
  tellOfReplacement(authority, deps)
  const renew = async (): Promise<TlsPair> => {
    const pair = await issuePair(authority, names, config.tls.validity_days)
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
  const show = async (pair: TlsPair): Promise<Shown> => {
    const spki = createPublicKey(pair.key).export({ format: 'der', type: 'spki' })
    const { first, named } = await leaves(spki, pair.cert)
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

function tellOfReplacement({ replaced, caFile }: Authority, { log, onEvent }: TlsDeps): void {
  if (replaced === null) return
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

/** SubjectPublicKeyInfo, DER. Fault invalid_request. */
async function requestedKey(csr: Uint8Array): Promise<Uint8Array> {
  try {
    const { Pkcs10CertificateRequest } = await loadX509()
    const request = new Pkcs10CertificateRequest(Uint8Array.from(csr))
    if (!(await request.verify())) throw new Error('its key has not signed it')
    return new Uint8Array(request.publicKey.rawData)
  } catch (error) {
    throw new Fault('invalid_request', `certificate request: ${messageOf(error)}`)
  }
}

async function issuePair(authority: Authority, names: readonly string[], validityDays: number): Promise<TlsPair> {
  const issued = await authority.issue(names, validityDays)
  const verdict = readPair(issued.cert, issued.key)
  if (!verdict.ok) throw new Fault('internal', `local certificate: ${verdict.reason}`)
  return verdict.pair
}

/** The certificate of an earlier start if this authority issued it for these names, else null. */
function readStored(file: string, authority: Authority, names: readonly string[]): TlsPair | null {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    return null
  }
  const certAt = text.indexOf('-----BEGIN CERTIFICATE-----')
  const verdict = readPair(text.slice(Math.max(certAt, 0)), text.slice(0, Math.max(certAt, 0)))
  if (!verdict.ok || !isIssuedBy(verdict.pair, authority)) return null
  return sameNames(verdict.pair.names, names) ? verdict.pair : null
}

/** One message to a VM holds about 64 KiB; some 30 other names fit. With more, one certificate has all names. */
const namedChars = 32_768

function charsOf({ named }: Leaves): number {
  return named.reduce((sum, { serverName, cert }) => sum + serverName.length + cert.length, 0)
}
