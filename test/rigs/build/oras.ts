// oras, the client of OCI artifacts, as Debian 13 has it: Debian 12 has no package of it. Effects: a download into the image cache, files of the caller's.

import { downloadPath, fetchPackages } from '../../../scripts/image/downloads.ts'
import { openCacheDirs } from '../../../scripts/image/image-cache.ts'
import { machineMirrors } from '../../../scripts/image/mirror.ts'
import type { LockedPackage } from '../../../scripts/image/packages-lock.ts'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import { messageOf } from '../../../src/base/fault.ts'

/** It needs nothing but the C library. */
const oras: LockedPackage = {
  name: 'oras',
  version: '1.2.0-1+b9',
  role: 'root',
  archive: 'debian',
  file: 'pool/main/o/oras/oras_1.2.0-1+b9_amd64.deb',
  sizeBytes: 3_378_932,
  sha256: '5f138419f0e4bc128ee4717b06190dc5770cf120ab7e3a991e5b3e9158f3189e',
}

/** Path of the program below an empty directory; or why there is none. */
export async function unpackOras(directory: string): Promise<{ path: string } | { reason: string }> {
  const { downloads } = await openCacheDirs(null)
  try {
    await fetchPackages(downloads, [oras], machineMirrors)
  } catch (error) {
    return { reason: `the mirror of this machine has no oras ${oras.version}: ${messageOf(error)}` }
  }
  succeed(['dpkg-deb', '--extract', downloadPath(downloads, oras.sha256), directory])
  return { path: `${directory}/usr/bin/oras` }
}
