// Goal: a busy port is reported with its field and ends the daemon in a way that lets systemd try again.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../scripts/rigs/until.ts'
import { startListener } from '../../src/appliance/listening.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { listenAddress } from '../../src/config/listen.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { listenDns } from '../../src/host/network/dns-socket.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { serveTls } from '../../src/http/serve.ts'
import { exitCodeOf, remedyOf } from '../../src/terminal/exit.ts'

const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-listening-'))
afterAll(() => rmSync(stateDir, { recursive: true }))
const authority = await openAuthority({
  kind: 'clients',
  stateDir,
  nowMs: Date.now,
  names: ['a.test'],
  random: systemRandom,
})
const { cert, key } = await authority.issue(['a.test'], 30)
const tls = {
  current: () => ({ cert, key, notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }),
  guestCertificate: () => cert,
  onChange: () => {},
}
const https = (listen: string) =>
  serveTls(() => new Response(), {
    ...listenAddress(listen),
    tls,
    idleTimeoutSeconds: 1,
    requestBodyBytesMax: 1,
    log: silentLogger,
  })
const dns = (listen: string) => {
  const { hostname: address, port } = listenAddress(listen)
  return listenDns({ transport: 'tcp', address, port, handler: () => null, log: silentLogger })
}

// Goal: a busy port is named by the field that asks for it.
test.each([
  ['instances', https],
  ['inference', https],
  ['dns', dns],
] as const)('goal: listen.%s on a busy port', async (name, start) => {
  using busy = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response() })
  const listen = { ...defaultConfig().listen, [name]: `127.0.0.1:${busy.port}` }
  const error = await failure(startListener(name, listen, () => start(listen[name])))
  expect(error).toMatchObject({
    code: 'host.listen_failed',
    param: `listen.${name}`,
    message: `listen.${name} = "127.0.0.1:${busy.port}": another process has this port`,
  })
  // Any code but 0: `Restart=on-failure` starts it again.
  expect(exitCodeOf(error)).toBe(1)
  expect(remedyOf(error)).toContain('ss --listening')
})

test('goal: an address that this host does not have', async () => {
  const listen = { ...defaultConfig().listen, instances: '192.0.2.7:8441' }
  const error = await failure(startListener('instances', listen, () => https(listen.instances)))
  expect(error.message).toBe('listen.instances = "192.0.2.7:8441": this host does not have this address')
})

test('goal: a port that needs root, and a failure without a sentence of ours', async () => {
  const listen = { ...defaultConfig().listen, inference: '0.0.0.0:443' }
  const messageFor = async (error: Error) => {
    const start = () => {
      throw error
    }
    return (await failure(startListener('inference', listen, start))).message
  }
  const denied = Object.assign(new Error('bind'), { code: 'EACCES' })
  const words = 'listen.inference = "0.0.0.0:443": permission denied; only root may use this port'
  expect(await messageFor(denied)).toBe(words)
  expect(await messageFor(new Fault('internal', 'wrapped', { cause: denied }))).toBe(words)
  const other = Object.assign(new Error('too many files'), { code: 'EMFILE' })
  expect(await messageFor(other)).toBe('listen.inference = "0.0.0.0:443": too many files')
})

test('goal: what the start gives is passed on', async () => {
  expect(await startListener('dns', defaultConfig().listen, async () => 7)).toBe(7)
})
