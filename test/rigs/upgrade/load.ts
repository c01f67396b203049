// Changes that an operator asks for all the time, over the admin socket, and what became of them. Effects: requests to
// the daemon of a booted Debian.

import type { ProvedHost } from '../../../scripts/prove/host.ts'

const stateDir = '/var/lib/strongroom'
const pauseMs = 100

/** Each accepted change is an organization, which stays for good. */
export class Load {
  readonly #host: Pick<ProvedHost, 'debian'>
  readonly #accepted = new Set<string>()
  /** Answers by status; `none`: no daemon, or one that died first. */
  readonly #answers = new Map<string, number>()
  readonly #refusals = new Set<string>()
  #running: Promise<void> | null = null
  #isStopping = false
  #count = 0

  constructor(host: Pick<ProvedHost, 'debian'>) {
    this.#host = host
  }

  start(): void {
    this.#isStopping = false
    this.#running ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    await this.#running
    this.#running = null
  }

  answers(): ReadonlyMap<string, number> {
    return this.#answers
  }

  /** Code and Retry-After of what was refused. */
  refusals(): string[] {
    return [...this.#refusals].toSorted()
  }

  /** Changes that were accepted until now are gone on purpose. */
  forget(): void {
    this.#accepted.clear()
  }

  /** Accepted, and not there, or there twice. */
  async lost(): Promise<string[]> {
    const found = await this.#request('GET')
    if (found === null) throw new Error('the daemon does not answer')
    const { organizations } = (await found.json()) as { organizations: { slug: string }[] }
    const slugs = organizations.map(({ slug }) => slug)
    return [...this.#accepted].filter(slug => slugs.filter(other => other === slug).length !== 1)
  }

  async #run(): Promise<void> {
    while (!this.#isStopping) {
      this.#count += 1
      const slug = `load-${this.#count}`
      const response = await this.#request('POST', { slug })
      const answer = response === null ? 'none' : String(response.status)
      if (response !== null && !response.ok) this.#refusals.add(await wordsOf(response))
      this.#answers.set(answer, (this.#answers.get(answer) ?? 0) + 1)
      if (response?.ok === true) this.#accepted.add(slug)
      await Bun.sleep(pauseMs)
    }
  }

  async #request(method: 'GET' | 'POST', body?: unknown): Promise<Response | null> {
    try {
      return await fetch('http://strongroom/organizations', {
        unix: `${this.#host.debian.root}${stateDir}/admin.sock`,
        method,
        headers: { 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
    } catch {
      return null
    }
  }
}

async function wordsOf(response: Response): Promise<string> {
  const { error } = (await response.json()) as { error: { code: string } }
  return `${error.code}, Retry-After ${response.headers.get('retry-after')}`
}
