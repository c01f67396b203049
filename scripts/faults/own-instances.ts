// The instances of one run, the responses about them, and the rules for them after a crash. Effects: requests of a
// customer.

import type { InstanceRecord } from '../../src/contract/http/instance.ts'
import type { Customer } from '../rigs/instances/instances-client.ts'
import type { Findings } from './scenario.ts'

const stepMs = 60_000

/** One instance for each run. */
export class OwnInstances {
  readonly #acme: Customer
  #run = 0
  #before: ReadonlySet<string> = new Set()
  #accepted: string | null = null
  #isDeleted = false

  constructor(acme: Customer) {
    this.#acme = acme
  }

  /** From now on another run. */
  async begin(): Promise<void> {
    this.#run += 1
    this.#before = new Set((await this.#acme.list()).map(({ name }) => name))
    this.#accepted = null
    this.#isDeleted = false
  }

  /** Returns its name. */
  async create(): Promise<string> {
    const { status, body } = await this.#acme.create(this.#key)
    if (status !== 202) throw new Error(`the create gets ${status} ${JSON.stringify(body.error ?? null)}`)
    this.#accepted = body.data.name
    return body.data.name
  }

  /** Ends when it is gone. */
  async end(name: string): Promise<void> {
    await this.#acme.remove(name)
    this.#isDeleted = true
    await this.#acme.reached(name, 'terminated', stepMs)
  }

  /** Names of those that have a VM. */
  async living(): Promise<string[]> {
    return (await this.#own()).filter(isLiving).map(({ name }) => name)
  }

  async unsettled(): Promise<Findings> {
    const records = await this.#own()
    const name = this.#accepted
    return [
      ...records
        .filter(({ status }) => status === 'terminating' || status === 'failed')
        .map(record => `${record.name} is ${record.status} (${record.failure_code ?? 'no failure'})`),
      ...(name === null || records.some(record => record.name === name)
        ? []
        : [`the accepted instance ${name} is lost`]),
      ...(this.#isDeleted
        ? records.filter(isLiving).map(record => `the deleted instance ${record.name} is ${record.status}`)
        : []),
    ]
  }

  /** The same create again makes no second one, and is answered as before. */
  async audit(): Promise<Findings> {
    const { status, body } = await this.#acme.create(this.#key)
    const records = await this.#own()
    const name = this.#accepted ?? body.data?.name
    return [
      ...(status === 202 ? [] : [`the same create again gets ${status} ${JSON.stringify(body.error ?? null)}`]),
      ...(records.length === 1 ? [] : [`one create has made ${records.length} instances`]),
      ...(body.data?.name === name ? [] : [`the same create again gets ${body.data?.name}, not ${name}`]),
    ]
  }

  async clear(): Promise<void> {
    for (const { name } of await this.#own()) await this.#acme.end(name, stepMs)
  }

  get #key(): string {
    return `run-${this.#run}`
  }

  async #own(): Promise<InstanceRecord[]> {
    return (await this.#acme.list()).filter(({ name }) => !this.#before.has(name))
  }
}

function isLiving({ status }: InstanceRecord): boolean {
  return status === 'provisioning' || status === 'ready'
}
