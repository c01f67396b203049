// Detects foreign changes of our nftables tables in one network namespace, and changes of its addresses. Effects: two
// netlink sockets, read ten times a second.
//
// Our own transactions run through `ours`: the kernel reports each before nft(8) returns, so everything read by then is
// ours.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { NETLINK, NetlinkSocket } from './netlink.ts'
import { NFT_FAMILIES, nftEvent, readMessages } from './netlink-message.ts'
import type { Netns } from './netns.ts'

export type NftWatchDeps = {
  /** Name of our tables. */
  readonly table: string
  readonly netns: Netns
  readonly clock: Clock
  readonly log: Logger
}

export type NftListener = {
  /**
   * Called after a foreign change of our tables. If not `certain`, there may have been one, before the watch began or
   * when events were lost. The next call waits until this one returns, and for a pause.
   */
  readonly onForeignChange: (change: { readonly certain: boolean }) => Promise<void>
  /** Called when an address, an interface or a routing rule was added or removed. */
  readonly onAddresses: () => Promise<void>
}

type EventCounts = { readonly ours: number; readonly lost: boolean }

const intervalMs = 100
/** Longest pause: repeated changes are handled ever more slowly. */
const restMsMax = 5_000
const calmMs = 1_000
const retryMs = 30_000

export class NftWatch {
  readonly #deps: NftWatchDeps
  #sockets: { readonly nft: NetlinkSocket; readonly addresses: NetlinkSocket } | null = null
  #isOurs = false
  #foreign: 'no' | 'perhaps' | 'yes' = 'no'
  /** Whether the open transaction has touched our tables. */
  #isTouched = false

  constructor(deps: NftWatchDeps) {
    this.#deps = deps
  }

  /** Runs one of our transactions; one at a time. */
  async ours<T>(work: () => Promise<T>): Promise<T> {
    this.#hear()
    this.#isOurs = true
    try {
      return await work()
    } finally {
      this.#isOurs = false
      // Events that match no transaction count as ours; otherwise each of our transactions would cause the next.
      if (this.#listen().ours > 1) this.#foreign = 'yes'
    }
  }

  /** Watches until the signal is aborted. Never rejects: logs failures and retries. */
  async run({ onForeignChange, onAddresses }: NftListener, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    let restMs = intervalMs
    let toldAtMs = Number.NEGATIVE_INFINITY
    while (!signal.aborted) {
      let waitMs = intervalMs
      try {
        if (this.#sockets === null) {
          this.#open()
          // Changes before this moment were not noticed.
          this.#foreign = 'perhaps'
        }
        if (!this.#isOurs) this.#hear()
        if (this.#hearAddresses()) await onAddresses()
        if (this.#foreign !== 'no') {
          const certain = this.#foreign === 'yes'
          this.#foreign = 'no'
          await onForeignChange({ certain })
          const nowMs = clock.monotonicMs()
          restMs = nowMs - toldAtMs < restMs + calmMs ? Math.min(restMs * 2, restMsMax) : intervalMs
          toldAtMs = nowMs
          waitMs = restMs
        }
      } catch (error) {
        log.error('the firewall cannot be watched at the moment; the sampler still looks after it', { error })
        this.#close()
        waitMs = retryMs
      }
      await pause(clock, waitMs, signal)
    }
    this.#close()
  }

  #open(): void {
    using opened = new DisposableStack()
    const open = (source: (typeof NETLINK)[keyof typeof NETLINK]) =>
      opened.use(this.#deps.netns.run(() => new NetlinkSocket(source)))
    this.#sockets = { nft: open(NETLINK.nftables), addresses: open(NETLINK.addresses) }
    opened.move()
  }

  #close(): void {
    this.#sockets?.nft[Symbol.dispose]()
    this.#sockets?.addresses[Symbol.dispose]()
    this.#sockets = null
  }

  #hear(): void {
    const { ours, lost } = this.#listen()
    if (ours > 0) this.#foreign = 'yes'
    else if (lost && this.#foreign === 'no') this.#foreign = 'perhaps'
  }

  /** Counts the transactions that have touched our tables. */
  #listen(): EventCounts {
    const { packets, lost } = this.#sockets?.nft.read() ?? { packets: [], lost: false }
    let ours = 0
    for (const message of packets.flatMap(readMessages)) {
      const event = nftEvent(message)
      if (event?.kind === 'generation') {
        if (this.#isTouched) ours += 1
        this.#isTouched = false
      } else if (event?.table === this.#deps.table && FAMILIES.includes(event.family)) this.#isTouched = true
    }
    return { ours, lost }
  }

  #hearAddresses(): boolean {
    const { packets, lost } = this.#sockets?.addresses.read() ?? { packets: [], lost: false }
    return packets.length > 0 || lost
  }
}

const FAMILIES: readonly number[] = Object.values(NFT_FAMILIES)
