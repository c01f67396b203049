// A transparency log over HTTPS, as services A and C serve it, whose answers a test may replace: the log under it, or
// one path alone. Effects: a free port, files in the caller's directory.

import { decodeCheckpoint } from '../../../src/attest/log/checkpoint.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { createEdge } from '../../../src/http/edge.ts'
import type { TransparencyLog } from '../../../src/transparency/log.ts'
import { type LogReader, logRoutes } from '../../../src/transparency/routes.ts'
import { type Signer, signedBy } from './log-signer.ts'

export type LogServer = AsyncDisposable & {
  readonly url: string
  readonly caFile: string
  /** Paths that were asked for. */
  readonly asked: string[]
  /** The log that is served. */
  log: LogReader
  /** In place of an answer; null means as the log says. */
  answer: (path: string) => Response | null
}

export async function startLogServer(directory: string, log: LogReader): Promise<LogServer> {
  const deps = { kind: 'clients' as const, stateDir: directory, nowMs: systemClock.nowMs, random: systemRandom }
  const authority = await openAuthority({ ...deps, names: ['localhost'] })
  const reader: LogReader = {
    checkpoint: () => server.log.checkpoint(),
    tile: tile => server.log.tile(tile),
    proof: leaf => server.log.proof(leaf),
    key: () => server.log.key(),
    failure: () => server.log.failure(),
  }
  const edge = createEdge({
    log: silentLogger,
    clock: systemClock,
    random: systemRandom,
    strangers: { level: level => level },
    routes: logRoutes({ log: reader, admit: () => {} }),
    admitChange: () => {},
    failureDocument: (_, error) => ({ error }),
  })
  const listener = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    tls: await authority.issue(['127.0.0.1'], 1),
    fetch: async request => {
      const { pathname } = new URL(request.url)
      server.asked.push(pathname)
      return server.answer(pathname) ?? (await edge(request, { address: () => '127.0.0.1' }))
    },
  })
  const server: LogServer = {
    url: `https://127.0.0.1:${listener.port}`,
    caFile: authority.caFile,
    asked: [],
    log,
    answer: () => null,
    [Symbol.asyncDispose]: () => listener.stop(true),
  }
  return server
}

/** Cosigns the newest tree of a log that has this witness. */
export async function cosign(log: TransparencyLog, witness: Signer, atMs: number): Promise<void> {
  const note = log.signed(log.head()?.size ?? 0)
  if (note === null) throw new Error('the log has not begun')
  const signatures = [...note.signatures, signedBy(witness, note.text, atMs)]
  await log.cosign({ ...note, signatures }, decodeCheckpoint(note.text))
}
