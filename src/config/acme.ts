// Publicly trusted certificates by ACME (RFC 8555): the table `tls.acme` of the configuration. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { AddressPortOrOff, Count, OneOf, PathOrNone, Section } from './fields.ts'

export const AcmeConfig = Section({
  directory: Type.String({
    default: '',
    pattern: '^$|^https://[^/?#@\\s]+(/[^?#\\s]*)?$',
    maxLength: 512,
    allowed: '"" or an https URL, without credentials',
    description:
      'Directory URL of the ACME server that issues the certificates of the service names. All its other URLs must be at the same host and port. "" for none.',
  }),
  terms_agreed: Type.Boolean({
    default: false,
    description: 'Whether you agree to the terms of service of the ACME server. Required for a `directory`.',
  }),
  contact: Type.Array(
    Type.String({
      pattern: '^[^@\\s,?]{1,64}@[a-zA-Z0-9.-]{1,253}$',
      allowed: 'an e-mail address',
    }),
    { default: [], maxItems: 4, description: 'E-mail addresses for messages of the ACME server.' },
  ),
  eab_kid: Type.String({
    default: '',
    maxLength: 256,
    description: 'Key identifier, where the ACME server binds accounts to earlier ones (EAB). Needs `eab_key_file`.',
  }),
  eab_key_file: PathOrNone('File with the HMAC key of `eab_kid`, in base64url, as the ACME server gave it.'),
  ca_file: PathOrNone(
    'File with the PEM certificates of the authorities to trust for `directory`. "" for those of the system.',
  ),
  names: Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
    default: [],
    maxItems: 16,
    description:
      'DNS names out of `tls.names` that get such a certificate, too. The names of the services always get one: `instances.`, `inference.` and `builds.` of `domain`.',
  }),
  published_per_week: Count(
    [0, 0, 1_000],
    'New certificates within 7 days for ports that owners of instances publish; one organization gets at most half of them. 0 closes published ports: port 443 of instances, and their names. Needs a `directory` and `listen.dns`.',
  ),
  challenge: OneOf(['auto', 'dns-01', 'http-01'], {
    default: 'auto',
    description:
      'How control of a name is proved. "auto" takes "dns-01" for names below `domain` while `listen.dns` is on, and "http-01" for others.',
  }),
  http_listen: AddressPortOrOff(
    '',
    'Plain HTTP address for "http-01", such as "0.0.0.0:80": the ACME server connects to port 80 of the name. The daemon listens there only during such a proof.',
  ),
})
export type AcmeConfig = Static<typeof AcmeConfig>

export type ChallengeType = 'dns-01' | 'http-01'

/** How control of a name is proved. */
export function challengeFor(
  name: string,
  { domain, listen, tls }: { domain: string; listen: { dns: string }; tls: { acme: AcmeConfig } },
): ChallengeType {
  const { challenge } = tls.acme
  if (challenge !== 'auto') return challenge
  return listen.dns !== '' && isBelowDomain(name, domain) ? 'dns-01' : 'http-01'
}

export function isBelowDomain(name: string, domain: string): boolean {
  return name === domain || name === `*.${domain}` || name.endsWith(`.${domain}`)
}

/** Names that get a certificate by ACME, by the holder of the key: this host or the gateway's VM. None: ACME is off. */
export function acmeNames({
  domain,
  listen,
  tls,
  inference,
}: {
  readonly domain: string
  readonly listen: { readonly inference: string; readonly builds: string }
  readonly tls: { readonly acme: AcmeConfig }
  readonly inference: { readonly placement: 'vm' | 'host' }
}): { readonly host: readonly string[]; readonly gateway: readonly string[] } {
  if (tls.acme.directory === '') return { host: [], gateway: [] }
  const { names } = tls.acme
  const own = (name: string, listener: string) => (listener === '' ? [] : [`${name}.${domain}`])
  const gatewayNames = own('inference', listen.inference)
  const isInVm = listen.inference !== '' && inference.placement === 'vm'
  const unique = (all: readonly string[]) => [...new Set(all)]
  return {
    host: unique([`instances.${domain}`, ...own('builds', listen.builds), ...(isInVm ? [] : gatewayNames), ...names]),
    gateway: isInVm ? unique([...gatewayNames, ...names]) : [],
  }
}
