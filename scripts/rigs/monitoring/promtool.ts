// promtool, Prometheus' checker of rules, as in Debian 12. Effects: a download into the image cache, files of the
// caller's.

import { messageOf } from '../../../src/base/fault.ts'
import { downloadPath, fetchPackages } from '../../image/downloads.ts'
import { openCacheDirs } from '../../image/image-cache.ts'
import { machineMirrors } from '../../image/mirror.ts'
import type { LockedPackage } from '../../image/packages-lock.ts'
import { succeed } from '../guest/root.ts'

/** The program needs nothing but the C library. */
const prometheus: LockedPackage = {
  name: 'prometheus',
  version: '2.42.0+ds-5+deb12u1',
  role: 'root',
  archive: 'debian',
  file: 'pool/main/p/prometheus/prometheus_2.42.0+ds-5+deb12u1_amd64.deb',
  sizeBytes: 19_257_088,
  sha256: '81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55',
}

/** Path of the program below an empty directory; or why there is none. */
export async function unpackPromtool(directory: string): Promise<{ path: string } | { reason: string }> {
  const { downloads } = await openCacheDirs(null)
  try {
    await fetchPackages(downloads, [prometheus], machineMirrors)
  } catch (error) {
    return { reason: `the mirror of this machine has no prometheus ${prometheus.version}: ${messageOf(error)}` }
  }
  succeed(['dpkg-deb', '--extract', downloadPath(downloads, prometheus.sha256), directory])
  return { path: `${directory}/usr/bin/promtool` }
}
