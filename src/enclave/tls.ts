// This VM's TLS key, which never leaves it, and the certificates that the host gets for it. Effects: the host, a timer.
//
// A certificate authority can certify another key, too. The gateway's receipt names this key and so binds it.

import { webcrypto } from 'node:crypto'
import { loadX509 } from '../attest/x509/runtime.ts'
import { toBase64Url } from '../base/bytes.ts'
import { type Clock, iso, pause } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { type NamedCertificate, readPair, type TlsPair } from '../http/pair.ts'
import type { ServedTls } from '../http/serve.ts'
import type { Wants } from './wants.ts'

export type CertificateAnswer = {
  readonly clients: string
  readonly guests: string
  readonly named: readonly NamedCertificate[]
}

export type EnclaveTlsDeps = {
  readonly wants: Pick<Wants, 'ask'>
  readonly clock: Clock
  readonly log: Logger
}

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
/** The host asks an authority, perhaps one of the operator's. */
const askTimeoutMs = 60_000
const retryMs = 5_000
const checkIntervalMs = 3_600_000

export class EnclaveTls implements ServedTls {
  readonly #deps: EnclaveTlsDeps
  readonly #csr: string
  readonly #key: string
  readonly #listeners: (() => void)[] = []
  #pair: TlsPair
  #guests: string
  #named: readonly NamedCertificate[]

  private constructor(parts: Certified & { csr: string; key: string }, deps: EnclaveTlsDeps) {
    this.#deps = deps
    this.#csr = parts.csr
    this.#key = parts.key
    this.#pair = parts.pair
    this.#guests = parts.guests
    this.#named = parts.named
  }

  /** A new key, certified; asks until it is. Rejects when the signal is aborted. */
  static async open(deps: EnclaveTlsDeps, signal: AbortSignal): Promise<EnclaveTls> {
    const { key, csr } = await newRequest()
    for (;;) {
      signal.throwIfAborted()
      try {
        return new EnclaveTls({ key, csr, ...(await certified(deps, csr, key)) }, deps)
      } catch (error) {
        deps.log.warn('there is no certificate yet; the host is asked again', { error, retryMs })
        await pause(deps.clock, retryMs, signal)
      }
    }
  }

  current(): TlsPair {
    return this.#pair
  }

  guestCertificate(): string {
    return this.#guests
  }

  named(): readonly NamedCertificate[] {
    return this.#named
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** Renews the certificates, for the same key, in the last third of their time; until the signal is aborted. */
  async keepFresh(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    while (!signal.aborted) {
      await pause(clock, checkIntervalMs, signal)
      if (signal.aborted || !this.#isDue(clock.nowMs())) continue
      try {
        const { pair, guests, named } = await certified(this.#deps, this.#csr, this.#key)
        this.#pair = pair
        this.#guests = guests
        this.#named = named
        for (const listener of this.#listeners) listener()
        log.info('certificates renewed', { fingerprint: pair.fingerprint })
      } catch (error) {
        log.error('the certificates are not renewed; they are tried again within the hour', { error })
      }
    }
  }

  #isDue(nowMs: number): boolean {
    const { notBeforeMs, notAfterMs } = this.#pair
    return notAfterMs - nowMs < (notAfterMs - notBeforeMs) / 3 || notBeforeMs > nowMs
  }
}

type Certified = Omit<CertificateAnswer, 'clients'> & { readonly pair: TlsPair }

async function newRequest(): Promise<{ key: string; csr: string }> {
  const x509 = await loadX509()
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: 'CN=strongroom',
    keys,
    signingAlgorithm: algorithm,
  })
  const pkcs8 = await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)
  const key = x509.PemConverter.encode(pkcs8, 'PRIVATE KEY')
  return { key: `${key}\n`, csr: toBase64Url(new Uint8Array(request.rawData)) }
}

/** Fault attest.unavailable: no answer, or certificates that are not for this key or not for now. */
async function certified({ wants, clock }: EnclaveTlsDeps, csr: string, key: string): Promise<Certified> {
  const want = { kind: 'certificate', csr, byName: true } as const
  const { clients, guests, named } = (await wants.ask(want, askTimeoutMs)) as CertificateAnswer
  const usable = (cert: string, whose: string): TlsPair => {
    const verdict = readPair(cert, key)
    const problem = verdict.ok ? whyUntimely(verdict.pair, clock.nowMs()) : verdict.reason
    if (verdict.ok && problem === null) return verdict.pair
    throw new Fault('attest.unavailable', `certificate for ${whose}: ${problem}`)
  }
  usable(guests, 'instances')
  for (const { serverName, cert } of named) usable(cert, serverName)
  return { pair: usable(clients, 'clients'), guests, named }
}

function whyUntimely({ notBeforeMs, notAfterMs }: TlsPair, nowMs: number): string | null {
  if (nowMs < notBeforeMs) return `it is not valid before ${iso(notBeforeMs)}; here it is ${iso(nowMs)}`
  return nowMs < notAfterMs ? null : `it has ended at ${iso(notAfterMs)}`
}
