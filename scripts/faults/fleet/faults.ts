// Faults of a fleet, drawn from a seed: those that happen to hosts, database, clocks and ways, and those of its
// operator. Effects: those of the faults.

import { createDraw } from '../../rigs/draw.ts'
import { cloneHost } from './clone.ts'
import type { FaultedFleet, FaultedHost, Heal } from './faulted-fleet.ts'
import { keepRecords } from './old-records.ts'
import { dumpAndRestore, forgetHost, rotatePassword } from './operator-faults.ts'

/** A fault that is over only with a later one. */
type Lasting = { readonly healAt: number; readonly heal: Heal }
/** It may return a `Heal`. */
type Fault = readonly [what: string, act: () => Promise<unknown> | unknown]

/** Choices for a fault. Each fault has as many draws, so that a seed repeats them. */
type Drawn = {
  readonly host: FaultedHost
  readonly other: FaultedHost
  readonly others: readonly FaultedHost[]
  /** Faults until this one is over, if it lasts. */
  readonly lasts: number
  readonly forMs: number
  readonly wrongMs: number
}

/** Groups of faults: of machines, of an operator, and those that bring older records back. */
export const FAULT_GROUPS = ['machine', 'operator', 'restore'] as const
export type FaultGroup = (typeof FAULT_GROUPS)[number]

/** From a fault to the next, at most: clients get on between them. */
const restMs = 300
const forMsMax = 600
/** Before the fleet gives its instances up. */
const downMsMax = 20_000
/** Less than a create is remembered for. */
const wrongMsMax = 2 * 3_600_000
const lastsMax = 6

export class Faults {
  /** In order. */
  readonly made: string[] = []
  readonly #fleet: FaultedFleet
  readonly #draw: (count: number) => number
  readonly #groups: readonly FaultGroup[]
  #lasting: Lasting[] = []

  constructor(fleet: FaultedFleet, seed: number, groups: readonly FaultGroup[]) {
    this.#fleet = fleet
    this.#groups = groups
    this.#draw = createDraw(seed)
  }

  /** Makes one fault, which ends before this resolves, or with a later one, or at `healAll`. */
  async next(): Promise<void> {
    const { hosts } = this.#fleet
    for (const host of hosts) {
      if (host.downSinceMs !== null && performance.now() - host.downSinceMs > downMsMax) await this.#fleet.start(host)
    }
    await this.#heal(({ healAt }) => healAt <= this.made.length)
    const host = hosts[this.#draw(hosts.length)] as FaultedHost
    const others = hosts.filter(({ name }) => name !== host.name)
    const drawn: Drawn = {
      ...{ host, others },
      other: others[this.#draw(others.length)] as FaultedHost,
      lasts: 1 + this.#draw(lastsMax),
      forMs: 50 + this.#draw(forMsMax),
      wrongMs: this.#draw(2 * wrongMsMax) - wrongMsMax,
    }
    const kinds = this.#groups.flatMap(group => FAULTS[group](this.#fleet, drawn))
    const [what, act] = kinds[this.#draw(kinds.length)] as Fault
    const rest = this.#draw(restMs)
    this.made.push(what)
    const beganMs = performance.now()
    const heal: unknown = await act()
    if (typeof heal === 'function') this.#lasting.push({ healAt: this.made.length + drawn.lasts, heal: heal as Heal })
    this.#fleet.note(`${this.made.length} ${what} (${Math.round(performance.now() - beganMs)} ms)`)
    await Bun.sleep(rest)
  }

  async #heal(isOver: (lasting: Lasting) => boolean): Promise<void> {
    const over = this.#lasting.filter(isOver)
    this.#lasting = this.#lasting.filter(lasting => !isOver(lasting))
    for (const { heal } of over) await heal()
  }

  /** Nothing is wrong any more. */
  async healAll(): Promise<void> {
    await this.#heal(() => true)
    await this.#fleet.healAll()
  }
}

function machineFaults(fleet: FaultedFleet, drawn: Drawn): Fault[] {
  const { host, other, others, lasts, forMs, wrongMs } = drawn
  const { name, proxy } = host
  const { databases } = fleet
  return [
    [`kill ${name}`, () => fleet.kill(host)],
    [`kill and start ${name}`, () => fleet.kill(host).then(() => fleet.start(host))],
    [`pause ${name} ${forMs}`, () => pause(host, forMs)],
    [
      `no way for ${name} ${forMs}`,
      async () => {
        proxy.set('hole')
        await Bun.sleep(forMs)
        proxy.set('open')
      },
    ],
    [
      `no way for ${name}, for ${lasts} faults`,
      () => {
        proxy.set('hole')
        return () => proxy.set('open')
      },
    ],
    [`no way between ${name} and ${other.name}, for ${lasts} faults`, () => fleet.part(host, other)],
    [
      `no way between ${name} and any other, for ${lasts} faults`,
      () => {
        const ends = others.map(apart => fleet.part(host, apart))
        return () => ends.forEach(end => void end())
      },
    ],
    [`${name} loses a connection before a commit`, () => proxy.set('before-commit')],
    [`${name} loses a connection after a commit`, () => proxy.set('after-commit')],
    ['connections are ended', () => endSessions(fleet)],
    [
      `the database is frozen ${forMs}`,
      async () => {
        databases.primary.freeze()
        await Bun.sleep(forMs)
        databases.primary.thaw()
      },
    ],
    [
      'the database is killed',
      async () => {
        await databases.primary.stop('kill')
        await Bun.sleep(forMs)
        await databases.primary.start()
      },
    ],
    ['the standby takes over', () => fleet.failOver()],
    [
      `the clock of ${name} is wrong by ${wrongMs}, for ${lasts} faults`,
      async () => {
        await fleet.setClock(host, wrongMs)
        return () => fleet.setClock(host, 0)
      },
    ],
    [`the clock of the database is wrong by ${wrongMs}`, () => databases.setClock(Math.round(wrongMs / 1000))],
    ['all hosts start', () => fleet.startAll()],
  ]
}

function operatorFaults(fleet: FaultedFleet, { host, lasts }: Drawn): Fault[] {
  const { name } = host
  return [
    [`a copy of ${name} runs for ${lasts} faults`, () => cloneHost(fleet, host)],
    [`${name} is cut off, and forgotten and joined after ${lasts} faults`, () => forgetHost(fleet, host)],
    [`the role of ${name} has another password, and its file after ${lasts} faults`, () => rotatePassword(fleet, host)],
  ]
}

function restoreFaults(fleet: FaultedFleet, { host, lasts }: Drawn): Fault[] {
  return [
    [`the directory is dumped, and restored after ${lasts} faults`, () => dumpAndRestore(fleet)],
    [`the records of ${host.name} are kept, and put back after ${lasts} faults`, () => keepRecords(fleet, host)],
  ]
}

const FAULTS = {
  machine: machineFaults,
  operator: operatorFaults,
  restore: restoreFaults,
} as const satisfies Record<FaultGroup, unknown>

async function pause({ process: at }: FaultedHost, forMs: number): Promise<void> {
  at?.child.kill('SIGSTOP')
  await Bun.sleep(forMs)
  at?.child.kill('SIGCONT')
}

async function endSessions(fleet: FaultedFleet): Promise<void> {
  const others = 'pid <> pg_backend_pid() AND datname = current_database()'
  await fleet.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${others}`)
}
