// Where this machine's own apt sources say that Debian packages are. Reads apt's configuration.

import { ImageFault } from './image-fault.ts'
import type { LockedPackage } from './packages-lock.ts'
import { runTool } from './tool.ts'

export type Mirrors = {
  /** Address of the archive's root, no trailing slash; null when no source of this machine names it. */
  readonly debian: string | null
  readonly 'debian-security': string | null
  /** Mirror that keeps old versions, with `{archive}` in the place of debian or debian-security. */
  readonly snapshot: string | null
}

const codenames = 'bullseye|bookworm|trixie|forky|oldoldstable|oldstable|stable|testing|unstable|sid'
const mainSuite = new RegExp(`^(${codenames})(-updates|-backports)?$`)
const securitySuite = new RegExp(`^(${codenames})-security$`)

/** Asks apt which archives it uses. A snapshot mirror comes from STRONGROOM_SNAPSHOT_MIRROR. */
export async function machineMirrors(): Promise<Mirrors> {
  const format = '$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)'
  const listing = await runTool(['apt-get', 'indextargets', '--format', format, 'Created-By: Packages'], {
    timeoutMs: 30_000,
    inheritEnv: true,
  })
  return mirrorsOf(listing, process.env.STRONGROOM_SNAPSHOT_MIRROR ?? null)
}

/** The archives in a listing of apt's index targets: address, release and component, tab-separated. */
export function mirrorsOf(listing: string, snapshot: string | null): Mirrors {
  const rows = listing.split('\n').map(line => line.split('\t'))
  const addressOf = (suite: RegExp) =>
    rows.find(([, release = '', component]) => suite.test(release) && component === 'main')?.[0]?.replace(/\/+$/, '')
  return {
    debian: addressOf(mainSuite) ?? null,
    'debian-security': addressOf(securitySuite) ?? null,
    snapshot: snapshot?.replace(/\/+$/, '') ?? null,
  }
}

/** Addresses to try for a package, best first. Throws mirror_unknown. */
export function packageAddresses(mirrors: Mirrors, entry: LockedPackage): string[] {
  const path = entry.file.split('/').map(encodeURIComponent).join('/')
  const bases = [mirrors[entry.archive], mirrors.snapshot?.replace('{archive}', entry.archive) ?? null]
  const addresses = bases.filter(base => base !== null).map(base => `${base}/${path}`)
  if (addresses.length === 0)
    throw new ImageFault('mirror_unknown', `no apt source of this machine has ${entry.archive}`)
  return addresses
}
