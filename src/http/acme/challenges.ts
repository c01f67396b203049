// Proofs of control of a name while an order is under way: tokens over plain HTTP (RFC 8555 8.3), texts in our DNS zone
// (8.4). Effects: a listener that is open only while a token is outstanding; texts go to the DNS server.

import type { ListenAddress } from '../../config/listen.ts'

/** A TXT record of the zone. `name`: in front of `{domain}`, such as `_acme-challenge.instances`; never empty. */
export type ChallengeText = { readonly name: string; readonly text: string }

/** Resolves once every answer of the DNS server has exactly these. */
export type ShowTexts = (texts: readonly ChallengeText[]) => Promise<void>

export type ChallengesDeps = {
  readonly domain: string
  /** Null if there is none. */
  readonly httpListen: ListenAddress | null
  /** Null if there is no DNS server. */
  readonly showTexts: ShowTexts | null
}

const TOKEN = /^[A-Za-z0-9_-]{1,128}$/
const tokensMax = 64
const idleTimeoutSeconds = 5
const path = '/.well-known/acme-challenge/'

export class Challenges {
  readonly #deps: ChallengesDeps
  readonly #tokens = new Map<string, string>()
  #texts: readonly ChallengeText[] = []
  #server: Bun.Server<undefined> | null = null

  constructor(deps: ChallengesDeps) {
    this.#deps = deps
  }

  /** Port of the listener; null while it is closed. */
  get port(): number | null {
    return this.#server?.port ?? null
  }

  /** Answers with `keyAuthorization` at the path of `token` until it is disposed of. Throws if it cannot listen. */
  async showToken(token: string, keyAuthorization: string): Promise<AsyncDisposable> {
    if (!TOKEN.test(token)) throw new Error('the token of the challenge is not base64url of at most 128 characters')
    if (this.#tokens.size >= tokensMax) throw new Error(`${tokensMax} proofs are under way already`)
    this.#tokens.set(token, keyAuthorization)
    const hide = async () => {
      this.#tokens.delete(token)
      if (this.#tokens.size > 0) return
      const server = this.#server
      this.#server = null
      await server?.stop(true)
    }
    try {
      this.#server ??= this.#listen()
    } catch (error) {
      await hide()
      throw error
    }
    return { [Symbol.asyncDispose]: hide }
  }

  /** Adds a TXT record `_acme-challenge.{name}` until it is disposed of. */
  async showText(name: string, text: string): Promise<AsyncDisposable> {
    const { domain, showTexts } = this.#deps
    if (showTexts === null) throw new Error('there is no DNS server for this proof: listen.dns is off')
    const whole = `_acme-challenge.${name.replace(/^\*\./, '')}`
    if (!whole.endsWith(`.${domain}`)) throw new Error(`${name} is not below ${domain}`)
    const row = { name: whole.slice(0, -domain.length - 1), text }
    const set = (texts: readonly ChallengeText[]) => {
      this.#texts = texts
      return showTexts(texts)
    }
    const hide = () => set(this.#texts.filter(other => other !== row))
    try {
      await set([...this.#texts, row])
    } catch (error) {
      await hide().catch(() => {})
      throw error
    }
    return { [Symbol.asyncDispose]: hide }
  }

  #listen(): Bun.Server<undefined> {
    const { httpListen } = this.#deps
    if (httpListen === null) throw new Error('tls.acme.http_listen is not set')
    const { hostname, port } = httpListen
    const answer = (request: Request) => this.#answer(request)
    try {
      return Bun.serve({
        hostname,
        port,
        idleTimeout: idleTimeoutSeconds,
        maxRequestBodySize: 0,
        development: false,
        fetch: answer,
      })
    } catch (error) {
      throw new Error(
        `tls.acme.http_listen = "${hostname}:${port}": ${String(Reflect.get(Object(error), 'code') ?? error)}`,
      )
    }
  }

  #answer({ method, url }: Request): Response {
    const found = /^http:\/\/[^/?#]*(\/[^?#]*)/.exec(url)?.[1] ?? ''
    const token = found.startsWith(path) ? found.slice(path.length) : ''
    const keyAuthorization = method === 'GET' || method === 'HEAD' ? this.#tokens.get(token) : undefined
    const headers = { Connection: 'close', 'X-Content-Type-Options': 'nosniff' }
    if (keyAuthorization === undefined) return new Response(null, { status: 404, headers })
    return new Response(keyAuthorization, { headers: { ...headers, 'Content-Type': 'application/octet-stream' } })
  }
}
