// Pebble, an ACME server for tests (RFC 8555), as a process: it checks nonces, signatures and proofs for real, asks our
// DNS server, and refuses some nonces on purpose. Effects: a process, files in a directory of the caller.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'

export const hasPebble = Bun.which('pebble') !== null

export type PebbleSettings = {
  /** An existing directory, for its files. */
  readonly directory: string
  /** Where it asks for names, `ADDRESS:PORT`. */
  readonly dnsServer: string
  /** Port at which it asks for tokens. */
  readonly httpPort: number
  readonly validitySeconds?: number
  /** Key identifiers and their HMAC keys (base64url); accounts need one then. */
  readonly bindings?: Readonly<Record<string, string>>
}

export type Pebble = {
  readonly directoryUrl: string
  /** Authority of its own HTTPS. */
  readonly caFile: string
  /** The root that its certificates lead to. */
  readonly root: () => Promise<string>
  readonly log: () => string
} & AsyncDisposable

export async function startPebble(settings: PebbleSettings): Promise<Pebble> {
  const dir = join(settings.directory, 'pebble')
  mkdirSync(dir, { recursive: true })
  const deps = { kind: 'clients', stateDir: dir, nowMs: Date.now, random: systemRandom } as const
  const authority = await openAuthority({ ...deps, names: ['localhost', '127.0.0.1'] })
  const pair = await authority.issue(['localhost', '127.0.0.1'], 30)
  writeFileSync(join(dir, 'cert.pem'), pair.cert)
  writeFileSync(join(dir, 'key.pem'), pair.key)
  const [port, managementPort] = [lastingPort(), lastingPort()]
  const pebble = {
    listenAddress: `127.0.0.1:${port}`,
    managementListenAddress: `127.0.0.1:${managementPort}`,
    certificate: join(dir, 'cert.pem'),
    privateKey: join(dir, 'key.pem'),
    httpPort: settings.httpPort,
    tlsPort: 5001,
    ocspResponderURL: '',
    externalAccountBindingRequired: settings.bindings !== undefined,
    ...(settings.bindings === undefined ? {} : { externalAccountMACKeys: settings.bindings }),
    certificateValidityPeriod: settings.validitySeconds ?? 90 * 86_400,
  }
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ pebble }))
  const child = Bun.spawn(['pebble', '-config', join(dir, 'config.json'), '-dnsserver', settings.dnsServer], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: { ...process.env, PEBBLE_VA_NOSLEEP: '1', PEBBLE_WFE_NONCEREJECT: '5', PEBBLE_AUTHZREUSE: '0' },
  })
  let log = ''
  const read = async (stream: ReadableStream<Uint8Array>) => {
    for await (const piece of stream.pipeThrough(new TextDecoderStream())) log += piece
  }
  const reading = Promise.all([read(child.stdout), read(child.stderr)])
  const ca = authority.caPem
  const directoryUrl = `https://localhost:${port}/dir`
  const get = (url: string) => fetch(url, { tls: { ca } }).then(response => response.text())
  await until('Pebble listens', 60_000, () =>
    get(directoryUrl).then(
      () => true,
      () => false,
    ),
  )
  return {
    directoryUrl,
    caFile: authority.caFile,
    root: () => get(`https://localhost:${managementPort}/roots/0`),
    log: () => log,
    [Symbol.asyncDispose]: async () => {
      child.kill()
      await child.exited
      await reading
    },
  }
}
