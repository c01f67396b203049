// The person that an ID token describes, and the role of their groups. Pure.

import { Fault } from '../../base/fault.ts'
import type { OidcConfig } from '../../config/operator.ts'
import type { AdminRole } from '../../contract/admin/roles.ts'
import { hasRightsOf, type Person } from '../person.ts'

export type Claims = Readonly<Record<string, unknown>>

export type OidcPerson = {
  readonly person: Person
  readonly issuer: string
  readonly subject: string
  /** Address in the token; null if it has none. */
  readonly email: string | null
  readonly isEmailVerified: boolean
}

/** OpenID Connect Core 5.7 and 2: at most 255 ASCII characters. Visible ones, because it is shown and recorded. */
const subjectPattern = /^[\x21-\x7e]{1,255}$/
// No flag i: with it, letters beyond ASCII match, such as the Kelvin sign.
const emailPattern = /^[^\s<>@,;:"\\\p{C}]{1,64}@([A-Za-z0-9.-]{1,253})$/u

type Rules = Pick<OidcConfig, 'groups' | 'groups_claim' | 'email_domains' | 'contact'>

/** Returns the person of a verified ID token. Fault forbidden if it has no role here. */
export function personOfClaims(claims: Claims, rules: Rules, issuer: string): OidcPerson {
  const { sub, email: given } = claims
  if (typeof sub !== 'string' || !subjectPattern.test(sub)) {
    throw refusal(rules, 'the identity provider sent a subject that is no visible ASCII text of 1 to 255 characters')
  }
  const domain = typeof given === 'string' ? emailPattern.exec(given)?.[1]?.toLowerCase() : undefined
  const email = domain === undefined ? null : String(given)
  const isEmailVerified = claims.email_verified === true
  if (rules.email_domains.length > 0) {
    if (domain === undefined || !isEmailVerified) {
      throw refusal(rules, 'this host needs a verified e-mail address, and the identity provider sent none')
    }
    if (!rules.email_domains.includes(domain)) throw refusal(rules, `addresses at ${domain} may not sign in here`)
  }
  const role = roleOfGroups(groupsIn(claims, rules), rules.groups)
  if (role === null) throw refusal(rules, 'none of your groups has a role on this host')
  // No user of this host: the configuration cannot name one with a colon.
  return { person: { uid: -1, actor: `oidc:${sub}`, role }, issuer, subject: sub, email, isEmailVerified }
}

/** Returns the highest role of these groups; null if none has a role. Names are compared exactly. */
export function roleOfGroups(groups: readonly string[], mapped: OidcConfig['groups']): AdminRole | null {
  const own = new Set(groups)
  return mapped
    .filter(({ group }) => own.has(group))
    .map(({ role }) => role)
    .reduce<AdminRole | null>((best, role) => (best === null || hasRightsOf(role, best) ? role : best), null)
}

/** Returns the groups: a list of texts, or one text. Fault forbidden for anything else. */
function groupsIn(claims: Claims, rules: Rules): readonly string[] {
  const name = rules.groups_claim
  const value = Object.hasOwn(claims, name) ? claims[name] : undefined
  if (typeof value === 'string') return [value]
  if (Array.isArray(value) && value.every(group => typeof group === 'string')) return value
  // Entra ID names the claim there if a person has too many groups (`_claim_names`, OpenID Connect Core 5.6.2).
  if (value === undefined && Object.hasOwn(Object(claims._claim_names), name)) {
    throw refusal(
      rules,
      `you are in more groups than the identity provider sends; its administrator must limit ${name} to groups with a role here`,
    )
  }
  const what = value === undefined ? `no claim ${name}` : `a claim ${name} that is neither text nor a list of texts`
  throw refusal(rules, `the identity provider sent ${what}`)
}

function refusal({ contact }: Rules, why: string): Fault {
  const who = contact === '' ? 'an administrator of this host' : contact
  return new Fault('forbidden', `You have no access to this console: ${why}. Ask ${who}.`)
}
