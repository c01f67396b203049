// Clients of a fleet that fails: they create, delete, repeat, spend, ask for evidence, and their instances send bytes;
// answers are kept for a checker. Effects: requests to the hosts, files of scripted VMs.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { createDraw } from '../../rigs/draw.ts'
import { FOLDERS, sendBytes } from '../../rigs/fleet/ledger-vms.ts'
import { publicKey } from '../../rigs/instances/instances-service.ts'
import type { Span } from './expected.ts'
import type { FaultedFleet, FaultedHost } from './faulted-fleet.ts'

type Draw = (count: number) => number

/** A wish of a client. Its answer may be unknown: then it is asked for again with the same key. */
export type Wished = {
  readonly key: string
  name: string | null
  /** The request that made the name known. */
  created: Span | null
  isDeleteAsked: boolean
  /** The request that was accepted. */
  deleted: Span | null
}

/** A request that was to cost so much. `unknown`: it was booked once or not at all. */
export type Spending = {
  readonly key: string
  readonly tokens: number
  outcome: 'unknown' | 'booked' | 'refused'
}

export type InstanceRow = {
  readonly name: string
  readonly status: string
  readonly terminated_reason: string | null
  readonly ready_at: string | null
}

type Answer = { readonly status: number; readonly body: unknown; readonly span: Span }

const answerMs = 12_000
/** Between two requests of all clients together, on average half of it: the machine bears that many. */
const thoughtMs = 50
/** Instances of a client at a time. */
const livingMax = 8
const bytesMax = 5_000

export class FleetClients {
  readonly wishes: Wished[] = []
  /** By the id of the request. */
  readonly spendings = new Map<string, Spending>()
  /** Answers by request and status; 0: none. */
  readonly answers = new Map<string, number>()
  /** Last answer to a create that was not accepted, for a failing test. */
  lastRefusal = ''
  readonly #fleet: FaultedFleet
  readonly #thoughtMs: number

  constructor(fleet: FaultedFleet, clientCount: number) {
    this.#fleet = fleet
    this.#thoughtMs = thoughtMs * clientCount
  }

  /** Goes on until the signal is aborted, whatever the answers. */
  async run(name: string, seed: number, signal: AbortSignal): Promise<void> {
    const draw = createDraw(seed)
    const own: Wished[] = []
    const any = (wishes: readonly Wished[]) => wishes[draw(wishes.length)] as Wished
    for (let count = 0; !signal.aborted; count += 1) {
      const unknown = own.filter(wish => wish.name === null)
      const living = own.filter(wish => wish.name !== null && !this.isDeleted(wish))
      const step = draw(18)
      if (step < 3 && unknown.length > 0) await this.create(any(unknown), draw)
      else if (step < 6 && living.length > 0) await this.remove(any(living), draw)
      else if (step < 9 && living.length > 0) await this.#askEvidence(any(living), draw)
      else if (step < 13) await this.#spend(`${name}-${count}`, draw)
      // Acknowledged or not, deleted or not, it is the same instance.
      else if (step < 14 && own.length > 0) await this.create(any(own), draw)
      else if (living.length + unknown.length >= livingMax) await this.remove(any([...living, ...unknown]), draw)
      else {
        const wish = { key: `${name}-${count}`, name: null, created: null, isDeleteAsked: false, deleted: null }
        own.push(wish)
        this.wishes.push(wish)
        await this.create(wish, draw)
      }
      this.#send(draw)
      await Bun.sleep(draw(this.#thoughtMs))
    }
  }

  /** So many creates and spends at once, whatever the answers. */
  async some(count: number, draw: Draw): Promise<void> {
    await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const wish = { key: `last-${index}`, name: null, created: null, isDeleteAsked: false, deleted: null }
        await Promise.all([this.create(wish, draw), this.#spend(`at-last-${index}`, draw)])
      }),
    )
  }

  async create(wish: Wished, draw: Draw): Promise<void> {
    const answer = await this.#ask(draw, 'POST', '/v1/instances', wish.key)
    if (answer?.status !== 202) {
      this.lastRefusal = JSON.stringify(answer)
      return
    }
    const { name } = (answer.body as { data: InstanceRow }).data
    const mayBeAnother = wish.name === null || this.#isUndone(wish.created)
    if (wish.name !== name && !mayBeAnother) throw new Error(`${wish.key} made ${wish.name} and ${name}`)
    if (wish.name !== name) Object.assign(wish, { name, isDeleteAsked: false, deleted: null })
    if (mayBeAnother) wish.created = answer.span
  }

  /** Its name is known, and no restored dump may lack it. */
  isCreated({ name, created }: Wished): boolean {
    return name !== null && !this.#isUndone(created)
  }

  /** Accepted, and not undone since. */
  isDeleted({ deleted }: Wished): boolean {
    return deleted !== null && !this.#isUndone(deleted)
  }

  #isUndone(span: Span | null): boolean {
    return span !== null && this.#fleet.expected.isUndone(span)
  }

  /** One that is not known by name yet is asked for again first. */
  async remove(wish: Wished, draw: Draw): Promise<void> {
    const { name } = wish
    if (name === null) return await this.create(wish, draw)
    wish.isDeleteAsked = true
    const answer = await this.#ask(draw, 'DELETE', `/v1/instances/${name}`)
    // Another request may have created it again meanwhile.
    if (wish.name !== name) return
    if (answer?.status === 404 && !this.#isUndone(wish.created))
      throw new Error(`${name} was acknowledged and is not there`)
    if (answer?.status === 404) wish.name = null
    if (answer?.status === 202) wish.deleted = answer.span
  }

  /** Through any host, which passes it on to the one that has the instance. */
  async #askEvidence({ name }: Wished, draw: Draw): Promise<void> {
    const nonce = Buffer.from(Uint8Array.from({ length: 32 }, () => draw(256))).toString('base64url')
    const answer = await this.#ask(draw, 'GET', `/v1/instances/${name}/attestation?nonce=${nonce}`)
    if (answer?.status !== 200) return
    const { data } = answer.body as { data: { name: string; nonce: string } }
    if (data.name !== name || data.nonce !== nonce) throw new Error(`evidence of ${data.name} for ${name}`)
  }

  /** One VM of a host, if it has any. */
  #send(draw: Draw): void {
    const { directory } = this.#fleet.hosts[draw(this.#fleet.hosts.length)] as FaultedHost
    const vms = readdirSync(join(directory, FOLDERS.qemu))
    const vmId = vms[draw(vms.length)]
    if (vmId !== undefined) sendBytes(directory, vmId, 1 + draw(bytesMax))
  }

  /** Every VM. */
  sendAll(): void {
    for (const { directory } of this.#fleet.hosts) {
      for (const vmId of readdirSync(join(directory, FOLDERS.qemu))) sendBytes(directory, vmId, bytesMax)
    }
  }

  async #spend(id: string, draw: Draw): Promise<void> {
    const host = this.#fleet.hosts[draw(this.#fleet.hosts.length)] as FaultedHost
    const most = 1 + draw(400)
    const tokens = draw(3) === 0 ? most : 1 + draw(most)
    const key = draw(2) === 0 ? 'k1' : 'k2'
    await this.spend(host, id, { key, most, tokens, holdMs: draw(40) })
  }

  /** Null if there was no answer. */
  async spend(
    { process }: FaultedHost,
    id: string,
    { key, most, tokens, holdMs }: { key: string; most: number; tokens: number; holdMs: number },
  ): Promise<number | null> {
    if (process === null) return null
    const spending: Spending = { key, tokens, outcome: 'unknown' }
    this.spendings.set(id, spending)
    const query = `id=${id}&key=${key}&most=${most}&tokens=${tokens}&holdMs=${holdMs}`
    const answer = await this.#answered('spend', `${process.booksUrl}/spend?${query}`, {})
    if (answer?.status === 200) spending.outcome = 'booked'
    else if (answer !== null) spending.outcome = 'refused'
    return answer?.status ?? null
  }

  /** Reads the egress of all hosts into this one's copy, as it does for each request of this kind. */
  async askUsage({ process: at }: FaultedHost): Promise<void> {
    const response = await fetch(`${at?.url}/v1/usage`, { headers: { Authorization: `Bearer ${this.#fleet.key}` } })
    await response.json()
  }

  async list(host: FaultedHost): Promise<readonly InstanceRow[]> {
    const url = host.process?.url
    const response = await fetch(`${url}/v1/instances`, { headers: { Authorization: `Bearer ${this.#fleet.key}` } })
    return ((await response.json()) as { data: { instances: InstanceRow[] } }).data.instances
  }

  async #ask(draw: Draw, method: string, path: string, idempotencyKey?: string): Promise<Answer | null> {
    const { process: at } = this.#fleet.hosts[draw(this.#fleet.hosts.length)] as FaultedHost
    if (at === null) return null
    return await this.#answered(method, at.url + path, {
      method,
      headers: {
        Authorization: `Bearer ${this.#fleet.key}`,
        ...(method === 'POST' ? { 'Content-Type': 'application/json' } : {}),
        ...(idempotencyKey === undefined ? {} : { 'Idempotency-Key': idempotencyKey }),
      },
      ...(method === 'POST' ? { body: JSON.stringify({ public_key: publicKey }) } : {}),
    })
  }

  async #answered(what: string, url: string, init: RequestInit): Promise<Answer | null> {
    const beganMs = performance.now()
    const answer = await fetch(url, { ...init, signal: AbortSignal.timeout(answerMs) }).then(
      async response => {
        const body = await response.json()
        return { status: response.status, body, span: { beganMs, endedMs: performance.now() } }
      },
      // Killed, paused or cut off: what became of it is not known.
      () => null,
    )
    const name = `${what} ${answer?.status ?? 0}`
    this.answers.set(name, (this.answers.get(name) ?? 0) + 1)
    if (answer?.status === 500) throw new Error(`${what} failed inside: ${JSON.stringify(answer.body)}`)
    if (answer?.status === 401) throw new Error(`the key is not known: ${JSON.stringify(answer.body)}`)
    return answer
  }
}
