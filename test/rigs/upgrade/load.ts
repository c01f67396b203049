// Changes that an operator asks for all the time, over the admin socket, and what became of them. Effects: a process
// that asks the daemon of a booted Debian.

import { join } from 'node:path'
import type { ProvedHost } from '../../../scripts/prove/host.ts'

const program = join(import.meta.dir, 'load-program.ts')
const pauseMs = 100
/** Longer than a request may take, on a busy machine. */
const endTimeoutMs = 60_000

type Answer = {
  readonly slug: string
  /** Null for no daemon, or one that died before it answered. */
  readonly status: number | null
  readonly code?: string | null
  readonly retryAfter?: string | null
}

/** Each accepted change is an organization, which stays for good. */
export class Load {
  readonly #host: Pick<ProvedHost, 'debian' | 'strongroom'>
  readonly #answers: Answer[] = []
  readonly #accepted = new Set<string>()
  #running: { readonly end: () => Promise<void> } | null = null
  #runs = 0

  constructor(host: Pick<ProvedHost, 'debian' | 'strongroom'>) {
    this.#host = host
  }

  /** In the container's namespace of processes, else its kernel names no caller to the daemon. */
  start(): void {
    if (this.#running !== null) return
    this.#runs += 1
    const { root } = this.#host.debian
    const pid = root.split('/')[2] ?? ''
    const words = [program, `${root}/var/lib/strongroom/admin.sock`, `load-${this.#runs}`, String(pauseMs)]
    const child = Bun.spawn(['nsenter', `--target=${pid}`, '--pid', '--', process.execPath, ...words], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    })
    const ended = child.stdout.text().then(text => {
      for (const line of text.split('\n').filter(Boolean)) this.#note(JSON.parse(line) as Answer)
    })
    const end = async () => {
      child.stdin.end()
      // It is a child of nsenter(1), and goes with the container.
      const late = Bun.sleep(endTimeoutMs).then(() => 'late')
      if ((await Promise.race([ended, late])) === 'late')
        throw new Error(`the load did not end within ${endTimeoutMs} ms`)
    }
    this.#running = { end }
  }

  async stop(): Promise<void> {
    const running = this.#running
    this.#running = null
    await running?.end()
  }

  answers(): readonly Answer[] {
    return this.#answers
  }

  acceptedCount(): number {
    return this.#accepted.size
  }

  /** Changes that were accepted until now are gone on purpose. */
  forget(): void {
    this.#accepted.clear()
  }

  /** Accepted, and not there, or there twice. */
  async lost(): Promise<string[]> {
    const { stdout } = await this.#host.strongroom(['org', 'list', '--json'])
    const { organizations } = JSON.parse(stdout) as { organizations: { slug: string }[] }
    const slugs = organizations.map(({ slug }) => slug)
    return [...this.#accepted].filter(slug => slugs.filter(other => other === slug).length !== 1)
  }

  #note(answer: Answer): void {
    this.#answers.push(answer)
    if (answer.status === 201) this.#accepted.add(answer.slug)
  }
}
