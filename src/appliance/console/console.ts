// Puts the console together: its listener, sessions and links, and the person of a session in the form of the admin
// interface. Effects: one listening socket.

import { isIPv6 } from 'node:net'
import { type Clock, iso } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { Runtime } from '../../base/runtime.ts'
import { hourMs, minuteMs } from '../../base/time.ts'
import { listenAddress, parseListen } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { hostsOf } from '../../console/http/origin.ts'
import { passkeyDocument } from '../../console/http/passkey.routes.ts'
import { type ConsoleFetch, createConsole } from '../../console/http/server.ts'
import type { Peer } from '../../console/http/session-answers.ts'
import { Changes } from '../../console/live/changes.ts'
import { Streams } from '../../console/live/streams.ts'
import { OidcSignIn } from '../../console/oidc/sign-in.ts'
import { pageFiles } from '../../console/page/page.ts'
import { Passkeys } from '../../console/passkeys/passkeys.ts'
import type { Person } from '../../console/person.ts'
import { Links, linkLifeMs } from '../../console/sessions/links.ts'
import { Sessions } from '../../console/sessions/sessions.ts'
import type { AnonymousLogLimit } from '../../http/anonymous-log-limit.ts'
import type { Tls } from '../../http/certificate.ts'
import { LimitedFault, UnavailableFault } from '../../http/limited.ts'
import { createPublicLimiter } from '../../http/public-rate.ts'
import { type FetchHandler, pauseSecondsMax, serveTls, type TlsServer } from '../../http/serve.ts'
import { createOutgoing } from '../../linux/net/outgoing.ts'
import type { ConsoleCaller } from '../../operator/access/caller.ts'
import type { ConsoleControl } from '../../operator/access/console-control.ts'
import type { Admin } from '../../operator/api.ts'
import type { MaintenanceMode } from '../../operator/maintenance/mode.ts'
import type { RequestCounts } from '../../operator/metrics/request-counts.ts'
import type { Command } from '../../operator/record/audit.ts'
import type { LedgerDb, Store } from '../../store/db.ts'
import { deletePasskey, listPasskeys } from '../../store/ledger/passkey.query.ts'
import type { ChangeGate } from '../../upgrade/gate.ts'
import { startListener } from '../listening.ts'
import { createMarks } from './marks.ts'
import { type Services, tenantServices } from './tenant.ts'

export type ConsoleParts = Runtime & {
  readonly config: Config
  readonly stateDir: string
  readonly store: Pick<Store, 'hostId' | 'directory' | 'ledger'>
  readonly gate: Pick<ChangeGate, 'admitChange' | 'isOpen'>
  readonly maintenance: Pick<MaintenanceMode, 'view'>
  readonly tls: Tls
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  readonly requests: RequestCounts
  readonly services: Services
}

type AskedAdmin = Pick<Admin, 'handle' | 'record' | 'personOf' | 'status'>

export type Console = {
  readonly control: ConsoleControl
  readonly listen: () => TlsServer
  /** Until then log-ins are refused. */
  readonly attach: (admin: AskedAdmin) => void
  /** Ends streams of pages that wait for changes. */
  readonly stop: () => void
}

/** From one address: by links, by passkeys and at the identity provider, where each takes two requests. */
const logInsPerMinute = 30

export type ServedConsole = Pick<Console, 'control' | 'attach'> & {
  readonly port: number
  readonly stop: () => Promise<void>
}

/** Null if it is off. Fault host.listen_failed. */
export async function serveConsole(parts: ConsoleParts): Promise<ServedConsole | null> {
  const { listen } = parts.config
  if (listen.console === '') return null
  const { control, attach, listen: start, stop } = composeConsole(parts)
  const server = await startListener('console', listen, start)
  const stopAll = () => {
    stop()
    return server.stop(true)
  }
  return { control, attach, port: server.port, stop: stopAll }
}

export function composeConsole(parts: ConsoleParts): Console {
  const { config, stateDir, store, clock, random, strangers, gate } = parts
  const log = parts.log.unit('console')
  let admin: AskedAdmin | null = null
  let port = listenAddress(config.listen.console).port
  const links = new Links({ clock, random })
  const sessions = new Sessions({
    ...{ clock, random },
    idleMs: config.console.session_idle_minutes * minuteMs,
    lifeMs: config.console.session_hours * hourMs,
  })
  const passkeys = new Passkeys({
    ...{ db: store.ledger.db, clock, random, log, hostId: store.hostId },
    personOf: actor => admin?.personOf(actor) ?? null,
    mayWrite: gate.isOpen,
  })
  const { oidc: provider } = config.console
  const send = createOutgoing(config.network.proxy)
  const oidc = provider.issuer === '' ? null : new OidcSignIn({ clock, random, log, strangers, send, config: provider })
  const changes = new Changes(createMarks({ store, clock, status: () => admin?.status() ?? null }))
  const streams = new Streams({ clock, log, changes, sweep: () => sessions.sweep() })
  const names = consoleNames(config)
  const tenant = tenantServices(parts.services, {
    ...{ config, stateDir, store, clock, log },
    maintenance: parts.maintenance,
  })
  const logIns = createPublicLimiter({ clock, requestsPerMinute: logInsPerMinute })
  const fetch = createConsole({
    ...{ clock, log, strangers, sessions, links, passkeys, oidc, streams, tenant, hostId: store.hostId },
    cursor: () => cursorOf(changes, log),
    admitChange: gate.admitChange,
    hosts: hostsOf(names),
    files: pageFiles,
    operator: () => {
      const asked = admin
      return asked === null ? null : (request, person) => asked.handle(request, callerOf(person))
    },
    record: (person, operation, asked) => recordIn(admin, person, { operation, arguments: asked }),
    services: {
      instances: tenant.instances !== null,
      inference: tenant.inference !== null,
      builds: tenant.builds !== null,
    },
    isInFleet: config.fleet.database !== '',
    admitLogIn: address => {
      const refusal = logIns.admitPublic(address)
      if (refusal !== null) throw new LimitedFault(refusal.message, refusal.retryAfterSeconds * 1000)
    },
  })
  return {
    control: controlOf({ links, sessions, db: store.ledger.db, clock, urls: token => urlsOf(names, port, token) }),
    attach: given => {
      admin = given
    },
    stop: () => streams.stop(),
    listen: () => {
      const server = listen(fetch, parts)
      port = server.port
      return server
    },
  }
}

function listen(
  fetch: ConsoleFetch,
  { config, tls, log, requests }: Pick<ConsoleParts, 'config' | 'tls' | 'log' | 'requests'>,
): TlsServer {
  const counted = requests.counted('console', fetch)
  const handler: FetchHandler = (request, socket) => counted(request, peerOf(request, socket))
  return serveTls(handler, {
    ...listenAddress(config.listen.console),
    tls,
    idleTimeoutSeconds: config.http.idle_timeout_s,
    // Each part limits the body while it arrives: the source of a build is larger than all others.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: log.unit('console'),
  })
}

/** Null if the database cannot be read now. */
function cursorOf(changes: Pick<Changes, 'cursor'>, log: Logger): string | null {
  try {
    return changes.cursor()
  } catch (error) {
    log.debug('what is now is not known', { error })
    return null
  }
}

/** Connection of a request in the form of the console. */
export function peerOf(request: Request, socket: Pick<Bun.Server<undefined>, 'requestIP' | 'timeout'>): Peer {
  return {
    address: () => socket.requestIP(request)?.address ?? '',
    mayPause: () => socket.timeout(request, pauseSecondsMax),
    mayStay: () => socket.timeout(request, 0),
  }
}

/** Refuses a log-in that cannot be recorded. Fault attestation_unavailable: the daemon is about to start. */
function recordIn(admin: AskedAdmin | null, person: Person, command: Omit<Command, 'by'>): void {
  if (admin === null) throw new UnavailableFault('The daemon is starting; try again.', 1_000)
  admin.record({ by: callerOf(person), ...command })
}

type ControlParts = {
  readonly links: Links
  readonly sessions: Sessions
  readonly db: LedgerDb
  readonly clock: Pick<Clock, 'nowMs'>
  readonly urls: (token: string) => readonly [string, ...string[]]
}

function controlOf({ links, sessions, db, clock, urls }: ControlParts): ConsoleControl {
  return {
    makeLink: person => ({ urls: urls(links.make(person)), endsAtMs: clock.nowMs() + linkLifeMs }),
    sessions: () =>
      sessions.list().map(({ id, person: { actor, role }, by, beganAtMs, endsAtMs }) => ({
        ...{ id, actor, role, by },
        began_at: iso(beganAtMs),
        ends_at: iso(endsAtMs),
      })),
    close: actor => {
      links.clear(actor)
      return sessions.end(({ person }) => actor === null || person.actor === actor)
    },
    passkeys: () => listPasskeys(db).map(passkeyDocument),
    removePasskey: id => {
      sessions.end(({ passkeyId }) => passkeyId === id)
      return deletePasskey(db, id)
    },
  }
}

function urlsOf(names: readonly string[], port: number, token: string): readonly [string, ...string[]] {
  const [first = 'localhost', ...others] = names.map(name => (isIPv6(name) ? `[${name}]` : name))
  const urlOf = (name: string) => `https://${name}:${port}/#token=${token}`
  return [urlOf(first), ...others.map(urlOf)]
}

/** Names by which a browser reaches it, the best first: passkeys belong to a name. */
function consoleNames({ console, listen }: Config): string[] {
  const address = parseListen(listen.console)?.hostname ?? ''
  const own = ['', '0.0.0.0', '::', '127.0.0.1', '::1'].includes(address) ? [] : [address]
  return [...new Set([...console.names, ...own, 'localhost'])]
}

/** No process connected: the kernel has no data about this caller. */
function callerOf({ uid, actor, role }: Person): ConsoleCaller {
  return { uid, gid: -1, pid: 0, socket: 'console', actor, role }
}
