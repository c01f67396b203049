// Tinyproxy as in Debian 12, with a hosts file of its own. Effects: a download into the image cache, files of the
// caller's, one process, a free port of 127.0.0.1.

import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { downloadPath, fetchPackages } from '../../../scripts/image/downloads.ts'
import { openCacheDirs } from '../../../scripts/image/image-cache.ts'
import { machineMirrors } from '../../../scripts/image/mirror.ts'
import type { LockedPackage } from '../../../scripts/image/packages-lock.ts'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { messageOf } from '../../../src/base/fault.ts'

/** The program needs nothing but the C library. */
const tinyproxy: LockedPackage = {
  name: 'tinyproxy-bin',
  version: '1.11.1-2.1+deb12u1',
  role: 'root',
  archive: 'debian',
  file: 'pool/main/t/tinyproxy/tinyproxy-bin_1.11.1-2.1+deb12u1_amd64.deb',
  sizeBytes: 44_472,
  sha256: '7a6155fe087bdfd97879d92d33b3e77df712ec10d5571f25cbf5759fa109eb21',
}

/** Path of the program below an empty directory; or why there is none. */
export async function unpackTinyproxy(directory: string): Promise<{ path: string } | { reason: string }> {
  const { downloads } = await openCacheDirs(null)
  try {
    await fetchPackages(downloads, [tinyproxy], machineMirrors)
  } catch (error) {
    return { reason: `the mirror of this machine has no tinyproxy ${tinyproxy.version}: ${messageOf(error)}` }
  }
  succeed(['dpkg-deb', '--extract', downloadPath(downloads, tinyproxy.sha256), directory])
  return { path: `${directory}/usr/bin/tinyproxy` }
}

export type Tinyproxy = AsyncDisposable & { readonly url: string }

/** `names`: lead to 127.0.0.1, for this process alone. `lines`: of its configuration. */
export async function startTinyproxy(
  path: string,
  { directory, names, lines }: { directory: string; names: readonly string[]; lines: readonly string[] },
): Promise<Tinyproxy> {
  const port = lastingPort()
  const [hosts, settings] = [`${directory}/hosts-${port}`, `${directory}/tinyproxy-${port}.conf`]
  writeFileSync(hosts, `127.0.0.1 localhost ${names.join(' ')}\n`)
  const own = [`Port ${port}`, 'Listen 127.0.0.1', 'Timeout 60', 'LogLevel Error', 'MaxClients 50']
  writeFileSync(settings, `${[...own, ...lines].join('\n')}\n`)
  const jail = ['--bind', '/', '/', '--dev', '/dev', '--ro-bind', hosts, '/etc/hosts', '--die-with-parent']
  const child = Bun.spawn(['bwrap', ...jail, '--', path, '-d', '-c', settings], { stdout: 'ignore', stderr: 'ignore' })
  const answers = () =>
    new Promise(resolve => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false))
      socket.on('connect', () => socket.destroy())
    })
  await until('tinyproxy listens', 20_000, answers)
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      child.kill()
      await child.exited
    },
  }
}
