// Tries the proxy of the configuration for `strongroom doctor`: a HEAD of `/` at each host that the daemon reaches
// through it. Effects: HTTPS requests, and reads of the files that the configuration names.

import { accessSync, constants, readFileSync } from 'node:fs'
import { systemErrorCode } from '../../base/fault.ts'
import type { Config, Platform } from '../../config/schema.ts'
import { createOutgoing } from '../../linux/net/outgoing.ts'
import { usesProxy } from '../../linux/net/proxy.plan.ts'
import { outcomeOf } from './check.ts'
import type { ProxyFacts } from './proxy.plan.ts'

const timeoutMsDefault = 10_000

/** Never throws; done within `timeoutMs`. */
export async function collectProxyFacts(
  {
    network: { proxy },
    kds,
    tls,
    log,
    console,
    alerts,
  }: Pick<Config, 'network' | 'kds' | 'tls' | 'log' | 'console' | 'alerts'>,
  platform: Platform,
  { timeoutMs = timeoutMsDefault, isForRoot = isForRootAlone } = {},
): Promise<ProxyFacts | null> {
  if (proxy.url === '') return null
  const send = createOutgoing(proxy)
  const found = [
    { url: platform === 'snp' ? kds.base_url : '', caFile: '' },
    { url: tls.acme.directory, caFile: tls.acme.ca_file },
    ...log.witnesses.map(({ url }) => ({ url, caFile: '' })),
    { url: console.oidc.issuer, caFile: console.oidc.ca_file },
    { url: alerts.webhook_url, caFile: alerts.webhook_ca_file },
  ]
  const targets = found.flatMap(({ url, caFile }) => {
    const target = URL.canParse(url) ? new URL(url) : null
    return target !== null && usesProxy(target, proxy) ? [{ target, caFile }] : []
  })
  const unread = [proxy.password_file, ...targets.map(({ caFile }) => caFile)].filter(isForRoot)
  if (unread.length > 0) return { url: proxy.url, hosts: [], unread }
  const hosts = targets.map(async ({ target, caFile }) => ({
    host: target.host,
    outcome: await outcomeOf(async () => {
      const signal = AbortSignal.timeout(timeoutMs)
      const tls = caFile === '' ? {} : { tls: { ca: readFileSync(caFile, 'utf8') } }
      const response = await send(target.origin, { method: 'HEAD', keepalive: false, signal, ...tls })
      await response.body?.cancel()
      return `status ${response.status}`
    }),
  }))
  return { url: proxy.url, hosts: await Promise.all(hosts), unread }
}

/** Reports whether this user, who is not root, may not read a file. */
function isForRootAlone(file: string): boolean {
  if (file === '' || process.geteuid?.() === 0) return false
  try {
    accessSync(file, constants.R_OK)
    return false
  } catch (error) {
    return ['EACCES', 'EPERM'].includes(systemErrorCode(error) ?? '')
  }
}
