// The transparency log of this appliance: what is put into it, who reads it, who cosigns it. Effects: a key and the
// file of the head in the state directory; the rest begins with `start`.

import { join } from 'node:path'
import { sha256 } from '../../attest/hash.ts'
import { decodeNoteKey } from '../../attest/log/note.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { pause } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Runtime } from '../../base/runtime.ts'
import type { Config } from '../../config/schema.ts'
import { checkedJson } from '../../contract/check.ts'
import type { LogFact } from '../../contract/http/log-entry.ts'
import { encodeAllowlist } from '../../contract/vm/allowlist.ts'
import { WorkloadDocument } from '../../contract/vm/workload.ts'
import { openEd25519Key } from '../../host/ed25519-key.ts'
import type { OperatorKey } from '../../host/operator-key.ts'
import type { EdgeRoute } from '../../http/edge.ts'
import { LimitedFault } from '../../http/limited.ts'
import { createPublicLimiter } from '../../http/public-rate.ts'
import { createOutgoing } from '../../linux/net/outgoing.ts'
import type { Store } from '../../store/db.ts'
import { logHeadFile } from '../../transparency/head.ts'
import { TransparencyLog } from '../../transparency/log.ts'
import { type LogPeer, logRoutes } from '../../transparency/routes.ts'
import { type Witness, Witnesses } from '../../transparency/witnesses.ts'
import type { LauncherDeps } from '../../vm/launch/launcher.driver.ts'

/** Between two attempts to write a log that could not be written. */
const retryMs = 60_000

/** Puts facts into the log, durably, before it returns. */
export type Publish = (...facts: readonly LogFact[]) => void

export type TransparencyParts = Runtime & {
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly operatorKey: Pick<OperatorKey, 'digest'>
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

export type Transparency = {
  readonly log: TransparencyLog
  readonly witnesses: Witnesses
  readonly named: readonly Witness[]
  readonly publish: Publish
  readonly beforeLaunch: LauncherDeps['beforeLaunch']
  readonly logRoutes: readonly EdgeRoute<LogPeer>[]
  readonly start: () => void
  readonly stop: () => Promise<void>
}

/** Composes the transparency log. Faults: config.invalid (a witness's key), internal (the key's file), store.*. */
export function composeTransparency(parts: TransparencyParts): Transparency {
  const { config, stateDir, store, clock, random } = parts
  const logger = parts.log.unit('log')
  const named = config.log.witnesses.map(witnessOf)
  const remedy = 'restore it from the backup, or remove it: then clients that pin the log must pin another key'
  const log = new TransparencyLog({
    ledger: store.ledger,
    key: openEd25519Key(join(stateDir, 'log-key.pem'), { what: 'key of the transparency log', remedy }),
    name: config.domain,
    headFile: join(stateDir, logHeadFile),
    witnesses: named.map(({ key }) => key),
    clock,
    random,
    log: logger,
    onEvent: parts.onEvent,
  })
  const witnesses = new Witnesses({
    ...{ log, witnesses: named, clock, logger },
    send: createOutgoing(config.network.proxy),
  })
  const limiter = createPublicLimiter({ clock, requestsPerMinute: config.log.requests_per_minute })
  const operatorKey: LogFact = { kind: 'operator-key', sha384: toHex(parts.operatorKey.digest) }
  const publish: Publish = (...facts) => log.append(...facts)
  const stopping = new AbortController()
  const begin = () => {
    try {
      log.begin()
      publish(operatorKey)
    } catch (error) {
      // A full disk, for example. Every step that needs an entry fails until there is room.
      logger.error('the transparency log cannot be written: nothing new is launched or served until it can', { error })
    }
  }
  // Without it a host with free space again would not be ready before the next request.
  const retried = async () => {
    while (!stopping.signal.aborted) {
      await pause(clock, retryMs, stopping.signal)
      if (!stopping.signal.aborted && log.failure() !== null) begin()
    }
  }
  return {
    log,
    witnesses,
    named,
    publish,
    beforeLaunch: ({ measurement, workload }) => {
      publish(operatorKey, { kind: 'image', measurement }, ...(workload === null ? [] : workloadFacts(workload)))
    },
    logRoutes: logRoutes({
      log,
      admit: address => {
        const refusal = limiter.admitPublic(address)
        if (refusal !== null) throw new LimitedFault(refusal.message, refusal.retryAfterSeconds * 1000)
      },
    }),
    start: () => {
      begin()
      witnesses.start()
      void retried()
    },
    stop: async () => {
      stopping.abort()
      await witnesses.stop()
    },
  }
}

function workloadFacts(workload: string): LogFact[] {
  const { allowlist } = checkedJson(WorkloadDocument, utf8(workload), { what: 'workload', code: 'internal' })
  return [
    { kind: 'workload', sha256: toHex(sha256(utf8(workload))) },
    { kind: 'allowlist', sha256: toHex(sha256(utf8(encodeAllowlist(allowlist)))) },
  ]
}

function witnessOf({ key, url }: Config['log']['witnesses'][number], at: number): Witness {
  const refuse = (why: string) =>
    new Fault('config.invalid', `log.witnesses[${at}].key: ${why}`, { param: 'log.witnesses' })
  let read: Witness['key']
  try {
    read = decodeNoteKey(key)
  } catch (error) {
    throw refuse(messageOf(error))
  }
  if (read.type !== 'cosignature') throw refuse('it is the key of a log, not of a witness (type 4)')
  return { key: read, url: url === '' ? null : url }
}
