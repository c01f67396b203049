// Contradictions in the table `tls.acme` of the configuration. Pure.

import { acmeNames, challengeFor, isBelowDomain } from '../acme.ts'
import { LISTENERS, listenOverlap, parseListen } from '../listen.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

export function acmeProblems(config: Config): CrossProblem[] {
  const { tls, domain, listen } = config
  const { acme } = tls
  const field = (name: keyof typeof acme) => `tls.acme.${name}`
  const problems = [
    ...when(acme.http_listen !== '' && parseListen(acme.http_listen) === null, {
      field: field('http_listen'),
      message: `${JSON.stringify(acme.http_listen)} is not allowed; allowed: "" or ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535`,
    }),
    ...when((acme.eab_kid === '') !== (acme.eab_key_file === ''), {
      field: field(acme.eab_kid === '' ? 'eab_key_file' : 'eab_kid'),
      message: `needs ${acme.eab_kid === '' ? 'eab_kid' : 'eab_key_file'} too; set both or none`,
    }),
    ...acme.names.flatMap((name, index) =>
      when(!tls.names.includes(name) && !isBelowDomain(name, domain), {
        field: `${field('names')}.${index}`,
        message: `${name} is not in tls.names, so nothing could serve it when ACME fails; put it there, too`,
      }),
    ),
  ]
  const canPublish = acme.directory !== '' && listen.dns !== '' && acme.challenge !== 'http-01'
  const published = when(acme.published_per_week > 0 && !canPublish, {
    field: field('published_per_week'),
    message:
      'needs a directory, listen.dns, and a challenge other than "http-01": names of published ports are proved by "dns-01"; 0 closes published ports',
  })
  if (acme.directory === '') return [...problems, ...published]
  const names = acmeNames(config)
  const all = [...new Set([...names.host, ...names.gateway])].map(name => ({ name, by: challengeFor(name, config) }))
  const byHttp = all.filter(({ by }) => by === 'http-01')
  const withoutDns = all.find(({ name, by }) => by === 'dns-01' && (listen.dns === '' || !isBelowDomain(name, domain)))
  const wildcard = byHttp.find(({ name }) => name.startsWith('*.'))
  const overlapping = LISTENERS.find(listener => overlaps(acme.http_listen, listen[listener]))
  return [
    ...problems,
    ...published,
    ...when(!URL.canParse(acme.directory), {
      field: field('directory'),
      message: `${JSON.stringify(acme.directory)} is not a URL`,
    }),
    ...when(!acme.terms_agreed, {
      field: field('terms_agreed'),
      message: 'must be true for a directory: read the terms of service of the ACME server',
    }),
    ...when(tls.certificate_file !== '', {
      field: field('directory'),
      message: 'excludes tls.certificate_file: certificates come from one of them',
    }),
    ...when(withoutDns !== undefined, {
      field: field('challenge'),
      message: `${withoutDns?.name} cannot be proved by "dns-01": this host's DNS server has names below domain alone, and listen.dns must be on`,
    }),
    ...when(wildcard !== undefined, {
      field: field('names'),
      message: `${wildcard?.name} cannot be proved by "http-01"`,
    }),
    ...when(byHttp.length > 0 && acme.http_listen === '', {
      field: field('http_listen'),
      message: `must be set: ${byHttp[0]?.name} is proved by "http-01"`,
    }),
    ...when(overlapping !== undefined, {
      field: field('http_listen'),
      message: `has an address and port of listen.${overlapping}`,
    }),
  ]
}

function overlaps(listen: string, other: string): boolean {
  const [a, b] = [parseListen(listen), parseListen(other)]
  return a !== null && b !== null && listenOverlap(a, b)
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
