// Puts the console together: its listener, sessions and links, and the person of a session as the admin interface knows
// one. Effects: one listening socket.

import { isIPv6 } from 'node:net'
import type { Runtime } from '../../base/runtime.ts'
import { listenAddress, parseListen } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { hostsOf } from '../../console/http/origin.ts'
import { createConsole } from '../../console/http/server.ts'
import { pageFiles } from '../../console/page/page.ts'
import type { Person } from '../../console/person.ts'
import { Links, linkLifeMs } from '../../console/sessions/links.ts'
import { Sessions } from '../../console/sessions/sessions.ts'
import type { Tls } from '../../http/certificate.ts'
import { LimitedFault } from '../../http/limited.ts'
import { createPublicLimiter } from '../../http/public-rate.ts'
import { serveTls, type TlsServer } from '../../http/serve.ts'
import type { StrangerLines } from '../../http/stranger-lines.ts'
import type { ConsoleCaller } from '../../operator/access/caller.ts'
import type { ConsoleControl } from '../../operator/access/console-control.ts'
import type { Admin } from '../../operator/api.ts'
import type { Store } from '../../store/db.ts'
import { startListener } from '../listening.ts'

export type ConsoleParts = Runtime & {
  readonly config: Config
  readonly store: Pick<Store, 'hostId'>
  readonly tls: Tls
  readonly strangers: Pick<StrangerLines, 'level'>
}

export type Console = {
  readonly control: ConsoleControl
  readonly listen: () => TlsServer
  /** Until then nobody logs in. */
  readonly attach: (admin: Pick<Admin, 'handle' | 'record'>) => void
}

const minuteMs = 60_000
const hourMs = 60 * minuteMs
/** From one address, by links and by passkeys. */
const logInsPerMinute = 20
/** Larger than any body that is read. */
const bodyBytesMax = 1_048_576

export type ServedConsole = Pick<Console, 'control' | 'attach'> & {
  readonly port: number
  readonly stop: () => Promise<void>
}

/** Null: it is off. Fault host.listen_failed. */
export async function serveConsole(parts: ConsoleParts): Promise<ServedConsole | null> {
  const { listen } = parts.config
  if (listen.console === '') return null
  const { control, attach, listen: start } = composeConsole(parts)
  const server = await startListener('console', listen, start)
  return { control, attach, port: server.port, stop: () => server.stop(true) }
}

export function composeConsole(parts: ConsoleParts): Console {
  const { config, store, clock, random, strangers } = parts
  const log = parts.log.unit('console')
  let admin: Pick<Admin, 'handle' | 'record'> | null = null
  let port = listenAddress(config.listen.console).port
  const links = new Links({ clock, random })
  const sessions = new Sessions({
    clock,
    random,
    idleMs: config.console.session_idle_minutes * minuteMs,
    lifeMs: config.console.session_hours * hourMs,
  })
  const names = consoleNames(config)
  const logIns = createPublicLimiter({ clock, requestsPerMinute: logInsPerMinute })
  const fetch = createConsole({
    ...{ clock, log, strangers, sessions, links, hostId: store.hostId },
    hosts: hostsOf(names),
    files: pageFiles,
    operator: () => {
      const asked = admin
      return asked === null ? null : (request, person) => asked.handle(request, callerOf(person))
    },
    record: (person, operation, asked) => admin?.record({ by: callerOf(person), operation, arguments: asked }),
    services: { instances: true, inference: config.listen.inference !== '', builds: config.listen.builds !== '' },
    passkeys: () => ({ rp_id: null, why: 'this version has none yet' }),
    admitLogIn: address => {
      const refusal = logIns.admitPublic(address)
      if (refusal !== null) throw new LimitedFault(refusal.message, refusal.retryAfterSeconds * 1000)
    },
  })
  const urlOf = (name: string, token: string) => `https://${isIPv6(name) ? `[${name}]` : name}:${port}/#token=${token}`
  return {
    control: {
      makeLink: person => {
        const token = links.make(person)
        const [first = 'localhost', ...others] = names
        const urls = [urlOf(first, token), ...others.map(name => urlOf(name, token))] as const
        return { urls: [urls[0], ...urls.slice(1)], endsAtMs: clock.nowMs() + linkLifeMs }
      },
    },
    attach: given => {
      admin = given
    },
    listen: () => {
      const server = serveTls(
        (request, socket) => fetch(request, { address: () => socket.requestIP(request)?.address ?? '' }),
        {
          ...listenAddress(config.listen.console),
          tls: parts.tls,
          idleTimeoutSeconds: config.http.idle_timeout_s,
          requestBodyBytesMax: bodyBytesMax,
          log,
        },
      )
      port = server.port
      return server
    },
  }
}

/** Names by which a browser reaches it, the best first: passkeys belong to a name. */
function consoleNames({ console, listen }: Config): string[] {
  const address = parseListen(listen.console)?.hostname ?? ''
  const own = ['', '0.0.0.0', '::', '127.0.0.1', '::1'].includes(address) ? [] : [address]
  return [...new Set([...console.names, ...own, 'localhost'])]
}

/** No process connected: the kernel knows nothing of this caller. */
function callerOf({ uid, actor, role }: Person): ConsoleCaller {
  return { uid, gid: -1, pid: 0, socket: 'console', actor, role }
}
