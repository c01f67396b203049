// One relay from its owner's side: a process of this executable with a socket that only the two share. Effects:
// starts and kills a process.

import { closeSync } from 'node:fs'
import { Fault } from '../../base/fault.ts'
import { relayCommand } from '../../base/work/child-commands.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { unixSocketPair } from '../../linux/libc/sockets.ts'
import { errnoName } from '../../linux/libc.ts'
import { ownProgram } from '../../linux/own-program.ts'
import { Channel } from './channel.ts'
import { RelayOwner, type RelayOwnerDeps } from './relay-owner.ts'
import type { FromOwner, FromRelay, Setup } from './wire.ts'

export type MemberTiming = {
  /** Limit from its start until it listens. */
  readonly startMs: number
  /** Pause between two pings. */
  readonly pingMs: number
  /**
   * Number of consecutive unanswered pings after which a relay counts as hung. A number rather than a time, so that a
   * suspended owner blames no relay.
   */
  readonly pingsMax: number
}

export type MemberDeps = RelayOwnerDeps & {
  readonly setup: Setup
  readonly deadlines: Deadlines
  readonly timing: MemberTiming
  readonly onListening: () => void
}

export class Member {
  readonly #deps: MemberDeps
  readonly #child: Bun.Subprocess
  readonly #owner: RelayOwner
  readonly #ended = Promise.withResolvers<string>()
  #channel: Channel<FromOwner, FromRelay> | null = null
  #reason: string | null = null
  #unansweredPings = 0
  #isListening = false

  private constructor(deps: MemberDeps, child: Bun.Subprocess) {
    this.#deps = deps
    this.#child = child
    this.#owner = new RelayOwner(deps, message => this.send(message))
    void child.exited.then(() => this.kill(`it has ended: ${child.signalCode ?? `exit code ${child.exitCode}`}`))
  }

  /** Starts a relay. Throws Fault host.unsupported if no process can be started. */
  static async start(deps: MemberDeps): Promise<Member> {
    const pair = unixSocketPair()
    if (!pair.ok) throw new Fault('host.unsupported', `a socket pair for a relay: ${errnoName(pair.errno)}`)
    const [own, theirs] = pair.fds
    let member: Member
    try {
      member = new Member(deps, spawn(theirs))
    } catch (error) {
      closeSync(own)
      throw new Fault('host.unsupported', 'a relay of the gateway cannot be started', { cause: error })
    } finally {
      closeSync(theirs)
    }
    await member.#begin(own)
    return member
  }

  get pid(): number {
    return this.#child.pid
  }

  get isListening(): boolean {
    return this.#isListening && this.#reason === null
  }

  /** Resolves with the reason once the relay has ended, and everything that it held is released and recorded. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** Sends a message. No effect once the relay has ended. */
  send(message: FromOwner): void {
    this.#channel?.send(message)
  }

  kill(reason: string): void {
    if (this.#reason !== null) return
    this.#reason = reason
    this.#child.kill('SIGKILL')
    this.#channel?.close()
    void Promise.all([this.#owner.close(), this.#child.exited]).then(
      () => this.#ended.resolve(reason),
      error => {
        this.#deps.log.error('the end of a relay was not recorded', { error })
        this.#ended.resolve(reason)
      },
    )
  }

  async #begin(fd: number): Promise<void> {
    const { setup, deadlines, timing } = this.#deps
    this.#channel = await Channel.open<FromOwner, FromRelay>(fd, {
      onMessage: message => this.#handleMessage(message),
      onClose: reason => this.kill(reason),
    })
    if (this.#reason !== null) this.#channel.close()
    this.send(setup)
    const cancelStart = deadlines.after(timing.startMs, () => this.kill('it does not listen in time'))
    void this.ended.then(cancelStart)
    this.#ping()
  }

  #handleMessage(message: FromRelay): void {
    if (message.kind === 'pong') this.#unansweredPings = 0
    else if (message.kind !== 'listening') this.#owner.handleMessage(message)
    else {
      this.#isListening = true
      this.#deps.onListening()
    }
  }

  #ping(): void {
    const { deadlines, timing } = this.#deps
    deadlines.after(timing.pingMs, () => {
      if (this.#reason !== null) return
      if (this.#isListening && this.#unansweredPings >= timing.pingsMax) return this.kill('it stopped answering')
      this.#unansweredPings += 1
      this.send({ kind: 'ping' })
      this.#ping()
    })
  }
}

function spawn(fd: number): Bun.Subprocess {
  return Bun.spawn([...ownProgram(), relayCommand], {
    // The environment is that of this process, because it names the authorities that TLS trusts. Nothing secret is
    // added.
    stdio: ['ignore', 'ignore', 'inherit', fd],
    cwd: '/',
  })
}
