// Contradictions in the table `network.proxy` of the configuration. Pure.

import { isNoProxyEntry, noProxyAllowed, usesProxy } from '../../linux/net/proxy.plan.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

export function proxyProblems({ network: { proxy }, tls, console, alerts }: Config): CrossProblem[] {
  const { url, user, password_file: file, no_proxy: entries } = proxy
  const field = (name: string) => `network.proxy.${name}`
  const wrong = entries.flatMap((entry, index) =>
    isNoProxyEntry(entry)
      ? []
      : [
          {
            field: field(`no_proxy.${index}`),
            message: `${JSON.stringify(entry)} is not allowed; allowed: ${noProxyAllowed}`,
          },
        ],
  )
  if (url !== '' && !isAddress(url)) {
    const message = `${JSON.stringify(url)} has no NAME:PORT or ADDRESS:PORT in the usual notation`
    wrong.push({ field: field('url'), message })
  }
  if ((user === '') !== (file === '')) {
    const message = 'user and password_file belong together; set both or none'
    wrong.push({ field: field(user === '' ? 'user' : 'password_file'), message })
  }
  if (user !== '' && url === '') wrong.push({ field: field('url'), message: 'is needed, because user is set' })
  if (wrong.length > 0 || !url.startsWith('https:')) return wrong
  return [
    { field: 'tls.acme.ca_file', caFile: tls.acme.ca_file, target: tls.acme.directory },
    { field: 'console.oidc.ca_file', caFile: console.oidc.ca_file, target: console.oidc.issuer },
    { field: 'alerts.webhook_ca_file', caFile: alerts.webhook_ca_file, target: alerts.webhook_url },
  ].flatMap(({ field, caFile, target }) => {
    if (caFile === '' || !URL.canParse(target) || !usesProxy(new URL(target), proxy)) return []
    // Both certificates of such a request are verified by the same authorities.
    const message = `does not work through a proxy with https: add ${new URL(target).hostname} to network.proxy.no_proxy, or use a proxy with http`
    return [{ field, message }]
  })
}

/** Reports whether a URL names its host as it is used: not by a number, such as 0x7f000001 or 127.1. */
function isAddress(url: string): boolean {
  if (!URL.canParse(url) || new URL(url).port === '0') return false
  const { protocol, hostname } = new URL(url)
  return url.startsWith(`${protocol}//${hostname}:`) && isNoProxyEntry(hostname.replace(/^\[|\]$/g, ''))
}
