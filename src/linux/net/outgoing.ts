// Requests of this host to other hosts, directly or through the operator's proxy. Effects: the network; reads the file
// of the proxy's password.
//
// test/meta/rooms/outgoing.test.ts lists the requests that do not pass here. Bun's fetch opens a tunnel through the
// proxy (CONNECT, RFC 9110 9.3.6), verifies the far side's certificate in it, and bounds the proxy's response (1.4.5).

import { readFileSync, statSync } from 'node:fs'
import { messageOf, systemErrorCode } from '../../base/fault.ts'
import { fetchReason, type ProxySettings, proxyFailure, usesProxy } from './proxy.plan.ts'

/**
 * Sends a request like fetch, but follows no redirect. Rejects with the signal's reason, or with an Error without
 * the URL's path, which may be a secret. A refusal of the proxy is such an Error and never a response.
 */
export type Outgoing = (url: string | URL, init?: BunFetchRequestInit) => Promise<Response>

const passwordBytesMax = 4_096

export function createOutgoing(settings: ProxySettings): Outgoing {
  return async (url, init = {}) => {
    const target = new URL(url)
    const isProxied = usesProxy(target, settings)
    // False turns off the proxy that the environment names.
    const proxy = isProxied ? { url: settings.url, headers: authorizationFor(settings) } : false
    try {
      return await fetch(target, { ...init, redirect: 'manual', proxy } as BunFetchRequestInit)
    } catch (error) {
      if (init.signal?.aborted === true) throw error
      const message = fetchReason(error)
      const code = systemErrorCode(error)
      const text = isProxied ? proxyFailure({ code: code ?? '', message }, target, settings) : message
      throw code === null ? new Error(text) : Object.assign(new Error(text), { code })
    }
  }
}

/** Sends directly, whatever proxy the environment names. */
export const fetchDirectly = createOutgoing({ url: '', user: '', password_file: '', no_proxy: [] })

/** RFC 7617 2. The file is read again for each request. Throws an Error that names the file. */
function authorizationFor({ user, password_file: file }: ProxySettings): Record<string, string> {
  if (user === '') return {}
  const password = readPassword(file)
  return { 'Proxy-Authorization': `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` }
}

/** Throws an Error that names the file. */
export function readPassword(file: string): string {
  try {
    // A FIFO would block.
    const stat = statSync(file)
    const isSmall = stat.isFile() && stat.size <= passwordBytesMax
    const password = isSmall ? readFileSync(file, 'utf8').trim() : ''
    if (password === '') throw new Error(`it must be a file with a password of at most ${passwordBytesMax} bytes`)
    return password
  } catch (error) {
    throw new Error(`network.proxy.password_file ${file} cannot be read: ${messageOf(error)}`)
  }
}

const VARIABLES = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'].flatMap(name => [name, name.toLowerCase()])

/**
 * Removes what names a proxy from the environment, because Bun prefers NO_PROXY there over a proxy in the request.
 * Returns the names of the variables that were set.
 */
export function ignoreProxyVariables(environment: NodeJS.ProcessEnv = process.env): string[] {
  const found = VARIABLES.filter(name => environment[name] !== undefined)
  for (const name of found) delete environment[name]
  return found
}
