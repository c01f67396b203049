// Checks of the console's names and of its identity provider. Pure.

import { isIP } from 'node:net'
import type { OidcConfig } from '../operator.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

/** RFC 1123 2.1, without a wildcard: a browser requests one name. */
const DNS_NAME = /^(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

/** Claims that a person fills in at many providers (OpenID Connect Core 1.0, 5.1). */
const OWN_CLAIMS: readonly string[] = [
  ...['email', 'preferred_username', 'name', 'nickname', 'given_name', 'family_name', 'middle_name'],
  ...['profile', 'picture', 'website', 'gender', 'birthdate', 'zoneinfo', 'locale', 'phone_number'],
]

export function consoleProblems({ console: { names, oidc }, listen }: Config): CrossProblem[] {
  return [...nameProblems(names), ...oidcProblems(oidc, listen.console !== '')]
}

function oidcProblems(oidc: OidcConfig, isConsoleOn: boolean): CrossProblem[] {
  const { issuer, client_id, client_secret_file, ca_file, groups, groups_claim, scopes } = oidc
  const when = (wrong: boolean, name: keyof OidcConfig, message: string): CrossProblem[] =>
    wrong ? [{ field: `console.oidc.${name}`, message }] : []
  if (issuer === '') {
    const message = 'needs console.oidc.issuer'
    return [
      ...when(client_id !== '', 'client_id', message),
      ...when(client_secret_file !== '', 'client_secret_file', message),
      ...when(ca_file !== '', 'ca_file', message),
      ...when(groups.length > 0, 'groups', message),
    ]
  }
  const url = URL.canParse(issuer) ? new URL(issuer) : null
  const twice = groups.findIndex(({ group }, index) => groups.findIndex(other => other.group === group) < index)
  return [
    ...when(url === null, 'issuer', `${JSON.stringify(issuer)} is not a URL`),
    ...when(url !== null && url.username + url.password !== '', 'issuer', 'may hold no user or password'),
    ...when(
      issuer.includes('/.well-known/'),
      'issuer',
      'is the issuer alone; leave out /.well-known/openid-configuration',
    ),
    ...when(!isConsoleOn, 'issuer', 'needs the console; set listen.console, such as "127.0.0.1:8444"'),
    ...when(client_id === '', 'client_id', 'must be the id of this console at the provider, because issuer is set'),
    ...when(client_secret_file === '', 'client_secret_file', 'must name the file of the secret, because issuer is set'),
    ...when(!scopes.includes('openid'), 'scopes', 'must have "openid"; without it the provider sends no ID token'),
    ...when(
      OWN_CLAIMS.includes(groups_claim),
      'groups_claim',
      `${groups_claim} is no claim for groups: people can change it themselves; let the provider send their groups in a claim of its own, such as "groups"`,
    ),
    ...when(
      groups.length === 0,
      'groups',
      'must map at least one group, because people sign in by their groups; add [[console.oidc.groups]]',
    ),
    ...when(twice !== -1, 'groups', `maps the group ${JSON.stringify(groups[twice]?.group)} twice; keep one of them`),
  ]
}

function nameProblems(names: readonly string[]): CrossProblem[] {
  return names.flatMap((name, index) =>
    isIP(name) !== 0 || DNS_NAME.test(name)
      ? []
      : [
          {
            field: `console.names.${index}`,
            message: `${JSON.stringify(name)} is not allowed; allowed: a DNS name in lowercase, or an IP address without brackets`,
          },
        ],
  )
}
