// Judges the facts about service C. Pure.

import type { Config } from '../../config/schema.ts'
import { type Check, fail, type ImageFacts, imageChecks, type Outcome, pass, skip } from './check.ts'

export type BuildFacts = ImageFacts & {
  /** `builds.fetch_ca_file`; null if it is not read. */
  readonly authorities: Outcome | null
  /** Space for the scratch and exchange disks of all VMs, GiB; null means not known. */
  readonly freeGib: number | null
}

/** One line where the service is off. */
export function buildChecks(
  facts: BuildFacts | null,
  { builds, vm, capacity }: Pick<Config, 'builds' | 'vm' | 'capacity'>,
): Check[] {
  if (facts === null) return [skip('builds', 'listen.builds is off: there is no service C')]
  const { authorities, freeGib } = facts
  return [
    ...imageChecks(facts, 'builder ', {
      image: `build it (bun scripts/build-image.ts builder) or copy it to builds.image_dir (${builds.image_dir}) again, or correct builds.image_dir`,
      measurement: `set builds.vcpus (${builds.vcpus}) and vm.vcpu_type (${vm.vcpu_type}) to a shape that the builder image has a launch digest for`,
    }),
    fetchCheck(builds, authorities),
    diskCheck(builds, { freeGib, isConfigured: capacity.scratch_gib !== 0 }),
  ]
}

function fetchCheck(builds: Config['builds'], authorities: Outcome | null): Check {
  const name = 'builder fetch'
  if (builds.fetch_hosts.length === 0) return skip(name, 'builds.fetch_hosts is empty: builds fetch nothing')
  const remedy = `put PEM certificates in builds.fetch_ca_file (${builds.fetch_ca_file}), readable to root, or set it to ""`
  if (authorities !== null && !authorities.ok) return fail(name, authorities.text, remedy)
  const hosts = `${builds.fetch_hosts.length} hosts through port ${builds.fetch_port}`
  const mirrors = [builds.crates_mirror, builds.rust_mirror].filter(mirror => mirror !== '')
  const known = mirrors.length === 0 ? hosts : `${hosts}, with the mirrors ${mirrors.join(' and ')}`
  return pass(name, authorities === null ? known : `${known}, with the authorities of ${authorities.text}`)
}

function diskCheck(builds: Config['builds'], room: { freeGib: number | null; isConfigured: boolean }): Check {
  const name = 'builder disk'
  const { scratch_gib: scratchGib, exchange_gib: exchangeGib } = builds
  const neededGib = scratchGib + exchangeGib
  if (room.freeGib === null) return skip(name, 'the room for disks of VMs is known after the first start, to root')
  const detail = `a build VM needs ${neededGib} GiB (builds.scratch_gib ${scratchGib}, builds.exchange_gib ${exchangeGib}); all VMs together have ${room.freeGib} GiB`
  if (room.freeGib >= neededGib) return pass(name, detail)
  const more = room.isConfigured ? 'raise capacity.scratch_gib' : 'free space in the state directory'
  return fail(name, detail, `${more}, or lower builds.scratch_gib and builds.exchange_gib`)
}
