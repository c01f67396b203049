// The certificate in service: the operator's files if configured, else one from the local authority. Effects: files,
// timer. A pair that cannot be used never replaces a working one: the old pair stays; log and journal get the reason.

import { createPublicKey, X509Certificate } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { loadX509 } from '../attest/x509/runtime.ts'
import { type Clock, iso } from '../base/clock.ts'
import { Fault, messageOf, systemErrorCode, wrapFault } from '../base/fault.ts'
import type { Runtime } from '../base/runtime.ts'
import { createSerial } from '../base/work/serial.ts'
import { sweepLater } from '../base/work/sweep.ts'
import { parseListen } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import type { CERTIFICATE_NAMES } from '../contract/admin/admin.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import { ensureDir, writeFileAtomic } from '../linux/files.ts'
import { type Authority, openAuthority, type Replacement } from './authority.ts'
import { isIssuedBy, readPair, sameNames, type TlsPair } from './pair.ts'

const dayMs = 86_400_000
const watchIntervalMs = 2_000
const renewIntervalMs = 3_600_000
/** Within this time before the end of the operator's certificate the log warns at start and every day. */
const expiryWarnMs = 14 * dayMs

export type TlsDeps = Runtime & {
  readonly config: NamingConfig
  readonly stateDir: string
  /** `tls.changed`, `tls.refused`, `tls.expiring`, `tls.authority_replaced`, for the journal. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

/**
 * Faults at start: config.file (the operator's files cannot be used), internal (the authority cannot). Later failures
 * keep the working pair and throw nothing.
 */
export async function createTls(deps: TlsDeps): Promise<Tls> {
  const { config, stateDir, clock, random } = deps
  const source = config.tls.certificate_file === '' ? await localSource(deps) : operatorSource(deps)
  const names = [guestGatewayName]
  const guests = await openAuthority({ kind: 'guests', stateDir, names, nowMs: clock.nowMs, random })
  return new Tls({ source, guests, guest: await certifyGuest(guests, source.first, clock) }, deps)
}

/** Certificates for the key of a gateway VM, as PEM. */
export type GatewayChains = { readonly clients: string; readonly guests: string }

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
  #warnedAtMs = Number.NEGATIVE_INFINITY

  constructor(parts: { source: Source; guests: Authority; guest: GuestCertificate }, deps: TlsDeps) {
    const { source, guests, guest } = parts
    this.source = source.kind
    this.caFile = source.caFile
    this.guestCaPem = guests.caPem
    this.#source = source
    this.#guests = guests
    this.#guest = guest
    this.#deps = deps
    this.#pair = source.first
    this.#warnOfExpiry()
    void this.#checkRepeatedly()
  }

  current(): TlsPair {
    return this.#pair
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
   * PKCS #10, DER; only its key counts. Fault invalid_request: malformed, or not signed by its key.
   */
  async certify(csr: Uint8Array): Promise<GatewayChains> {
    const { config } = this.#deps
    const spki = await requestedKey(csr)
    const clients = await this.#source.authority()
    return {
      clients: await clients.certify(spki, certificateNames(config), config.tls.validity_days),
      guests: await this.#guests.certify(spki, [guestGatewayName], config.tls.validity_days),
    }
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
          this.#replace(pair, await certifyGuest(this.#guests, pair, this.#deps.clock))
        }
        this.#warnOfExpiry()
      } catch (error) {
        log.error('certificate not renewed', { error })
        onEvent('tls.refused', { reason: messageOf(error) })
      }
    })
  }

  #replace(next: TlsPair, guest: GuestCertificate): void {
    const { log, onEvent, clock } = this.#deps
    const { fingerprint, key, cert } = this.#pair
    const isSame = next.fingerprint === fingerprint && next.key === key && next.cert === cert
    if (isSame && !isGuestDue(this.#guest, clock.nowMs())) return
    this.#guest = guest
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

type NamingConfig = Pick<Config, 'tls' | 'domain' | 'listen' | 'network'>

/** DNS names and addresses of a local certificate. Instances of earlier releases use the gateway's address. */
export function certificateNames({ tls, domain, listen, network }: NamingConfig): string[] {
  const address = parseListen(listen.instances)?.hostname ?? ''
  const specific = isIP(address) !== 0 && !['0.0.0.0', '::'].includes(address) ? [address] : []
  const own = [
    domain,
    `instances.${domain}`,
    `inference.${domain}`,
    ...(listen.builds === '' ? [] : [`builds.${domain}`]),
    'localhost',
    '127.0.0.1',
    '::1',
    network.gateway_v4,
  ]
  return [...new Set([...own, ...specific, ...tls.names])]
}

type Source = {
  readonly kind: Tls['source']
  readonly first: TlsPair
  readonly caFile: string | null
  /** Null: nothing is known of it. */
  readonly authorityEndsMs: number | null
  readonly intervalMs: number
  readonly warnMs: number
  /** Signs for keys of other processes. */
  readonly authority: () => Promise<Pick<Authority, 'certify'>>
  /** The pair to serve from now on, or null for no change. */
  readonly check: (now: { readonly current: TlsPair; readonly forced: boolean }) => Promise<TlsPair | null>
}

async function localSource(deps: TlsDeps): Promise<Source> {
  const { config, stateDir, clock } = deps
  const dir = join(stateDir, 'tls')
  // Key and chain share a file, so a crash cannot separate them.
  const file = join(dir, 'server.pem')
  ensureDir(dir, { mode: 0o700 })
  const names = certificateNames(config)
  const authority = await openAuthority({ kind: 'clients', stateDir, names, nowMs: clock.nowMs, random: deps.random })
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
    check: async ({ current }) => (isDue(current) ? await renew() : null),
  }
}

const REPLACED = {
  unconstrained: 'the earlier one could sign for any name',
  names: 'the names of this appliance have changed',
} as const satisfies Record<Replacement, string>

function tellOfReplacement({ replaced, caFile }: Authority, { log, onEvent }: TlsDeps): void {
  if (replaced === null) return
  const remedy =
    'give clients the new ca_file; who holds the earlier one, running instances included, may refuse this appliance'
  log.warn('certificate authority replaced', { reason: REPLACED[replaced], caFile, remedy })
  onEvent('tls.authority_replaced', { reason: REPLACED[replaced], ca_file: caFile })
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

function operatorSource({ config, stateDir, clock, random, log, onEvent }: TlsDeps): Source {
  const { certificate_file: certificateFile, key_file: keyFile } = config.tls
  const read = () => readPair(readFileSync(certificateFile, 'utf8'), readFileSync(keyFile, 'utf8'))
  const stamp = () => `${stampOf(certificateFile)} ${stampOf(keyFile)}`
  let seen = stamp()
  let unsettled: string | null = null
  let first: TlsPair
  try {
    const verdict = read()
    if (!verdict.ok) throw new Error(verdict.reason)
    first = verdict.pair
  } catch (error) {
    const why = `tls.certificate_file ${certificateFile}, tls.key_file ${keyFile}`
    throw new Fault('config.file', wrapFault(error, why).message, { param: 'tls.certificate_file', cause: error })
  }
  const refuse = (reason: string): null => {
    log.warn('certificate refused, the old one stays', { reason, certificateFile, keyFile })
    onEvent('tls.refused', { reason, certificate_file: certificateFile })
    return null
  }
  return {
    kind: 'operator',
    first,
    caFile: null,
    authorityEndsMs: null,
    intervalMs: watchIntervalMs,
    warnMs: expiryWarnMs,
    // The operator's certificate cannot sign, so a gateway VM gets its certificate from an authority of this appliance.
    authority: () =>
      openAuthority({ kind: 'clients', stateDir, names: certificateNames(config), nowMs: clock.nowMs, random }),
    check: async ({ current, forced }) => {
      const now = stamp()
      if (now === seen && !forced) return null
      const verdict = readQuietly(read)
      // Two files cannot be replaced atomically: a mismatched pair is refused once it stayed unchanged for an interval.
      if (!verdict.ok && !forced && unsettled !== now) {
        unsettled = now
        return null
      }
      seen = now
      unsettled = null
      if (!verdict.ok) return refuse(verdict.reason)
      const nowMs = clock.nowMs()
      if (verdict.pair.notAfterMs <= nowMs && current.notAfterMs > nowMs) {
        return refuse(`the certificate expired at ${iso(verdict.pair.notAfterMs)}`)
      }
      return verdict.pair
    },
  }
}

function readQuietly(read: () => ReturnType<typeof readPair>): ReturnType<typeof readPair> {
  try {
    return read()
  } catch (error) {
    return { ok: false, reason: messageOf(error) }
  }
}

/** Changes with the file, also through symbolic links. */
function stampOf(file: string): string {
  try {
    const { dev, ino, size, mtimeMs, ctimeMs } = statSync(file)
    return [dev, ino, size, mtimeMs, ctimeMs].join(':')
  } catch (error) {
    return String(systemErrorCode(error))
  }
}
