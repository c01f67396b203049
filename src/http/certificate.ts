// The certificate in service: the operator's files if configured, otherwise one from the local authority. Effects:
// files, timer. A pair that cannot be used never replaces a working one: the old pair stays; log and journal get the
// reason.

import { createHash, X509Certificate } from 'node:crypto'
import { loadX509 } from '../attest/x509/runtime.ts'
import { type Clock, iso } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { dayMs } from '../base/time.ts'
import { createSerial } from '../base/work/serial.ts'
import { sweepLater } from '../base/work/sweep.ts'
import { parseListen } from '../config/listen.ts'
import type { CERTIFICATE_NAMES } from '../contract/admin/admin.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import { spkiOf, spkiSha256Of } from '../linux/keys/spki.ts'
import { type AcmeCertificates, closedPublishing, type Issued, type PublishRequest } from './acme/acme-certificates.ts'
import type { ChallengesDeps } from './acme/challenges.ts'
import { openAcme } from './acme/open.ts'
import { type Authority, openAuthority } from './authority.ts'
import { certificateNames, type ServedCertificates, type Source, type TlsDeps } from './certificate-source.ts'
import { localSource } from './local-certificate.ts'
import { operatorSource } from './operator-certificate.ts'
import type { NamedCertificate, TlsPair } from './pair.ts'
import type { FormerNames } from './served-names.ts'

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
  const acme = config.tls.acme.directory === '' ? null : openAcme(deps, source.first.key)
  return new Tls({ source, guests, guest, acme, shown: await source.show(source.first) }, deps)
}

/** Certificates for the key of a gateway VM, as PEM. */
export type GatewayChains = {
  readonly clients: string
  readonly guests: string
  /** Only by name. */
  readonly named?: NamedCertificate[]
  /** Only for a VM that follows: names for which it is to send requests, and what `stamp` was. */
  readonly requests?: string[]
  readonly stamp?: string
}

export type CertifyOptions = {
  readonly byName: boolean
  /** The VM takes `requests` and `stamp`. */
  readonly follows?: boolean
  /** Requests by the same key, each for one name (PKCS #10, DER). */
  readonly requests?: readonly { readonly name: string; readonly csr: Uint8Array }[]
}

/** A gateway's VM waits for 60 s. */
const acmeWaitMs = 45_000
/** Longer than one order. */
const publishWaitMs = 240_000

type GuestCertificate = { readonly cert: string; readonly notBeforeMs: number; readonly notAfterMs: number }

/** Made at every start and used only here, so it may be valid for long. */
const guestValidityDays = 365
const guestRenewBeforeMs = 90 * dayMs

/** For the key of the pair in service, because receipts name one key for all connections. */
async function certifyGuest(guests: Authority, { key }: TlsPair, clock: Clock): Promise<GuestCertificate> {
  const cert = await guests.certify(spkiOf(key), [guestGatewayName], guestValidityDays)
  const { validFrom, validTo } = new X509Certificate(cert)
  return { cert, notBeforeMs: Math.min(Date.parse(validFrom), clock.nowMs()), notAfterMs: Date.parse(validTo) }
}

function isGuestDue({ notBeforeMs, notAfterMs }: GuestCertificate, nowMs: number): boolean {
  return notBeforeMs > nowMs || notAfterMs - nowMs < guestRenewBeforeMs
}

export type { Tls }

type TlsParts = {
  readonly source: Source
  readonly guests: Authority
  readonly guest: GuestCertificate
  readonly acme: AcmeCertificates | null
  readonly shown: ServedCertificates
}

class Tls {
  readonly source: 'local' | 'operator'
  /** The authority that clients must trust; null while the operator's own certificate is served. */
  readonly caFile: string | null
  /** The authority that instances trust; they reach the gateway as `guestGatewayName`. */
  readonly guestCaPem: string
  readonly #source: Source
  readonly #deps: TlsDeps
  readonly #guests: Authority
  readonly #acme: AcmeCertificates | null
  readonly #listeners: (() => void)[] = []
  readonly #stopping = new AbortController()
  /** Serializes checks: a SIGHUP during a renewal waits. */
  readonly #checks = createSerial()
  #pair: TlsPair
  #guest: GuestCertificate
  /** Without the certificates by ACME. */
  #own: ServedCertificates
  #shown: ServedCertificates
  #warnedAtMs = Number.NEGATIVE_INFINITY

  constructor(parts: TlsParts, deps: TlsDeps) {
    const { source, guests, guest, acme, shown } = parts
    this.source = source.kind
    this.caFile = source.caFile
    this.guestCaPem = guests.caPem
    this.#source = source
    this.#guests = guests
    this.#guest = guest
    this.#acme = acme
    this.#own = shown
    this.#deps = deps
    this.#pair = source.first
    this.#shown = this.#withAcme(shown)
    acme?.onChange(() => this.#followAcme())
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

  /** Returns names from before a change of the domain, which are still served; null if there are none. */
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
  async certify(csr: Uint8Array, options: CertifyOptions): Promise<GatewayChains> {
    const { validity_days: days } = this.#deps.config.tls
    const { byName, follows = false, requests = [] } = options
    const spki = await requestedKey(csr)
    const guests = await this.#guests.certify(spki, [guestGatewayName], days)
    const chains = byName ? await this.#chainsFor(spki, requests) : []
    const more = follows ? { requests: [...(this.#acme?.gatewayNames ?? [])], stamp: this.stamp() } : {}
    const leaves = byName ? await this.#source.leaves(spki) : null
    const named = withChains(leaves?.named ?? [], chains)
    if (leaves !== null && charsOf(named) <= namedChars) return { ...more, clients: leaves.first, guests, named }
    const clients = await this.#source.authority()
    const all = await clients.certify(spki, certificateNames(this.#deps.config), days)
    return { ...more, clients: all, guests, ...(chains.length === 0 ? {} : { named: chains }) }
  }

  /** Changes with the certificates that a gateway's VM would get, whichever key it has. SHA-256, hexadecimal. */
  stamp(): string {
    const parts = [this.#source.stamp(), this.guestCaPem, this.#acme?.gatewayNames, this.#acme?.gatewayStamp()]
    return createHash('sha256').update(JSON.stringify(parts)).digest('hex')
  }

  /** By ACME, for the key of a gateway's VM; waits a while for a first one. */
  async #chainsFor(spki: Uint8Array, requests: CertifyOptions['requests'] = []): Promise<NamedCertificate[]> {
    if (this.#acme === null) return []
    const digest = spkiSha256Of(spki)
    if (requests.length > 0) {
      for (const { name, csr } of requests) {
        if (spkiSha256Of(await requestedKey(csr)) === digest) continue
        throw new Fault('invalid_request', `certificate request for ${name}: it is by another key`)
      }
      this.#acme.takeRequests(digest, requests)
      await this.#acme.settled(digest, acmeWaitMs)
    }
    return this.#acme.chainsFor(digest)
  }

  /**
   * The certificate of a published port of an instance; waits a while for a first one. Fault invalid_request: the
   * request is malformed, or not signed by its key.
   */
  async publish({ csr, ...asked }: PublishRequest): Promise<Issued> {
    if (this.#acme === null) return { chain: null, problem: closedPublishing }
    const request = { ...asked, csr, spkiSha256: spkiSha256Of(await requestedKey(csr)) }
    const first = this.#acme.publish(request)
    if (first.chain !== null || first.problem !== null) return first
    await this.#acme.settled(request.spkiSha256, publishWaitMs)
    // The owner may have unpublished the port meanwhile.
    return this.#acme.issued(request)
  }

  /** Forgets the certificates of published ports of which this is true. */
  forgetPublished(isGone: (name: string) => boolean): void {
    this.#acme?.forgetPublished(isGone)
  }

  /** Calls `listener` after every change; its exceptions are logged. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /**
   * For SIGHUP: reads the operator's files again, or renews the local certificate if due; places orders by ACME again
   * that failed. Never throws.
   */
  reload(): Promise<void> {
    this.#acme?.retryNow()
    return this.#check({ forced: true })
  }

  /** Names with certificates by ACME; null if it is off. */
  acme(): ReturnType<AcmeCertificates['view']> | null {
    return this.#acme?.view() ?? null
  }

  /** From now on certificates are ordered by ACME, if that is on. */
  startAcme(challenges: Pick<ChallengesDeps, 'showTexts'>): void {
    const { domain, tls } = this.#deps.config
    const httpListen = tls.acme.http_listen === '' ? null : parseListen(tls.acme.http_listen)
    this.#acme?.start({ ...challenges, domain, httpListen })
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#acme?.stop()
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

  #withAcme({ first, named }: ServedCertificates): ServedCertificates {
    const spkiSha256 = spkiSha256Of(spkiOf(this.#pair.key))
    return { first, named: withChains(named, this.#acme?.chainsFor(spkiSha256) ?? []) }
  }

  /** A gateway's VM may have got one of them, too: every listener looks. */
  #followAcme(): void {
    this.#shown = this.#withAcme(this.#own)
    this.#announce()
  }

  #replace(next: TlsPair, guest: GuestCertificate, shown: ServedCertificates): void {
    const { log, onEvent, clock } = this.#deps
    const { fingerprint, key, cert } = this.#pair
    const isSame = next.fingerprint === fingerprint && next.key === key && next.cert === cert
    if (isSame && !isGuestDue(this.#guest, clock.nowMs())) return
    this.#guest = guest
    this.#own = shown
    if (!isSame) {
      this.#pair = next
      this.#warnedAtMs = Number.NEGATIVE_INFINITY
      const detail = { fingerprint: next.fingerprint, expires_at: iso(next.notAfterMs) }
      log.info('certificate changed', detail)
      onEvent('tls.changed', detail)
    }
    this.#shown = this.#withAcme(shown)
    this.#announce()
  }

  #announce(): void {
    for (const listener of this.#listeners) {
      try {
        listener()
      } catch (error) {
        this.#deps.log.error('a listener does not serve the new certificate', { error })
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

/** One message to a VM holds about 64 KiB; some 30 other names fit. With more, one certificate has all names. */
const namedChars = 32_768

function charsOf(named: readonly NamedCertificate[]): number {
  return named.reduce((sum, { serverName, cert }) => sum + serverName.length + cert.length, 0)
}

/** Those by ACME instead of the local ones of the same names. */
function withChains(named: readonly NamedCertificate[], chains: readonly NamedCertificate[]): NamedCertificate[] {
  const names = new Set(chains.map(({ serverName }) => serverName))
  return [...named.filter(({ serverName }) => !names.has(serverName)), ...chains]
}
