// Problems of certificates: those that end soon, and names that get none by ACME. Pure.

import { dayMs } from '../../base/time.ts'
import type { AdminAcmeName, AdminStatus } from '../../contract/admin/admin.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'

/** The local certificates are renewed long before; the authorities are not. */
const EXPIRY_SOON_DAYS = { server: 14, guest: 14, authority: 180, guest_authority: 180 } as const
const CERTIFICATES = {
  server: 'the certificate of the services',
  guest: 'the certificate of what instances reach',
  authority: 'the authority that clients trust (ca.pem)',
  guest_authority: 'the authority that instances trust',
} as const
const LOCAL_REMEDY =
  'the log has the reason why it is not renewed (tls.refused in the event log): journalctl --unit=strongroom --grep=tls'
const AUTHORITY_REMEDY = 'replace it by a new one, which clients must trust: strongroom help 3am'

type Tls = Pick<AdminStatus['tls'], 'certificates' | 'source'>

/** Files of the operator's own certificate, "" without one, and the names that clients of this host's services use. */
export type OwnCertificate = {
  readonly certificateFile: string
  readonly keyFile: string
  readonly names: readonly string[]
}

type ServingConfig = {
  readonly domain: string
  readonly listen: Readonly<Record<'inference' | 'builds' | 'console', string>>
  readonly inference: { readonly placement: 'vm' | 'host' }
  readonly console: { readonly names: readonly string[] }
  readonly tls: { readonly names: readonly string[] }
}

/** A gateway in a VM has a certificate of its own. */
export function servedNames({ domain, listen, inference, tls, ...config }: ServingConfig): string[] {
  const names = [
    `instances.${domain}`,
    ...(listen.inference === '' || inference.placement === 'vm' ? [] : [`inference.${domain}`]),
    ...(listen.builds === '' ? [] : [`builds.${domain}`]),
    ...tls.names,
    ...(listen.console === '' ? [] : config.console.names),
  ]
  return [...new Set(names)]
}

export function certificateProblems({ certificates, source }: Tls, own: OwnCertificate, nowMs: number): FoundProblem[] {
  return certificates.flatMap(({ name, expires_at }): FoundProblem[] => {
    const leftMs = Date.parse(expires_at) - nowMs
    if (leftMs >= EXPIRY_SOON_DAYS[name] * dayMs) return []
    const isOver = leftMs <= 0
    const isOwn = name === 'server' && source === 'operator'
    const services = name === 'server' ? ` (${listText(own.names)})` : ''
    const whose = `${CERTIFICATES[name]}${services}${isOwn ? ', which is yours,' : ''}`
    const detail = isOver ? `${whose} expired at ${expires_at}` : `${whose} ends soon: at ${expires_at}`
    const severity = isOver ? 'critical' : 'warning'
    return [
      {
        name: 'certificate',
        subject: name,
        severity,
        sinceMs: null,
        detail,
        remedy: isOwn ? ownRemedy(own) : remedyOf(name),
      },
    ]
  })
}

function remedyOf(name: Tls['certificates'][number]['name']): string {
  return name === 'authority' || name === 'guest_authority' ? AUTHORITY_REMEDY : LOCAL_REMEDY
}

function ownRemedy({ certificateFile, keyFile, names }: OwnCertificate): string {
  return `put a renewed certificate with its chain into ${certificateFile} (tls.certificate_file), and its key into ${keyFile} (tls.key_file): the daemon reads them within seconds. It must have the names ${listText(names)}, which the daemon does not check; a pair that does not match or has expired is refused, and the old one stays (tls.refused in the log)`
}

function listText(names: readonly string[]): string {
  return names.slice(0, shownNames).join(', ') + (names.length > shownNames ? ', …' : '')
}

/** No share: limits a line. */
const shownNames = 6

/** At this age renewals have failed repeatedly. */
const ACME_SOON_DAYS = 7
const ACME_WAIT = 'wait for the first order; strongroom help configure has what it needs'

export type AcmeSettings = { readonly directory: string; readonly httpListen: string }

export function acmeProblems(names: readonly AdminAcmeName[], settings: AcmeSettings, nowMs: number): FoundProblem[] {
  return names.flatMap((row): FoundProblem[] => {
    const { name, expires_at, failure } = row
    if (failure === null && expires_at !== null) return []
    const problem = { name: 'acme', subject: name } as const
    if (failure === null)
      return [{ ...problem, severity: 'warning', sinceMs: null, detail: acmeText(row), remedy: ACME_WAIT }]
    const type = failure.type?.replace('urn:ietf:params:acme:error:', '') ?? 'no problem document'
    const isSoon = expires_at === null || Date.parse(expires_at) - nowMs < ACME_SOON_DAYS * dayMs
    return [
      {
        ...problem,
        severity: isSoon ? 'critical' : 'warning',
        sinceMs: Date.parse(failure.at),
        detail: acmeText(row),
        remedy: acmeRemedy({ type, detail: failure.detail }, settings),
      },
    ]
  })
}

/** Describes the certificate of a name and its next order. */
export function acmeText({ holder, expires_at, next_at, failure }: AdminAcmeName): string {
  const whose = holder === 'gateway' ? 'the gateway VM' : 'this host'
  const held =
    expires_at === null
      ? `${whose} has none: clients get the certificate of the local authority`
      : `${whose} has one, which is valid until ${expires_at}`
  const next = next_at === null ? 'an order is due or under way' : `next order at ${next_at}`
  if (failure === null) return `${held}; ${next}`
  const type = failure.type?.replace('urn:ietf:params:acme:error:', '') ?? 'no problem document'
  return `${held}; the order failed at ${failure.at}: ${type}: ${failure.detail}; ${next}`
}

function acmeRemedy(
  { type, detail }: { readonly type: string; readonly detail: string },
  { directory, httpListen }: AcmeSettings,
): string {
  if (detail.startsWith('tls.acme.http_listen'))
    return `free ${httpListen}: ss --listening --tcp --processes shows which program has it; then systemctl reload strongroom`
  switch (type) {
    case 'rateLimited':
      return 'the ACME server limits orders: wait; a gateway VM that is started again and again orders one each time'
    case 'dns':
    case 'caa':
    case 'unauthorized':
    case 'incorrectResponse':
    case 'connection':
      return `the ACME server did not find the proof of this host. With http-01 the name must resolve to this host, and the program at its port 80 must pass /.well-known/acme-challenge/ to ${httpListen || 'tls.acme.http_listen'}; with dns-01 the domain must be delegated to this host's DNS server. Then run systemctl reload strongroom, which interrupts nothing`
    case 'externalAccountRequired':
      return 'set tls.acme.eab_kid and tls.acme.eab_key_file as the ACME server gave them'
    default:
      return `see that this host reaches ${directory}, and tls.acme.ca_file if that is private; then systemctl reload strongroom`
  }
}
