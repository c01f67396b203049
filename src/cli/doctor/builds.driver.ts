// Collects the facts about service C for `strongroom doctor`. Effects: reads files.

import { existsSync } from 'node:fs'
import { resultOr } from '../../base/result-or.ts'
import { readAuthorities } from '../../builds/fetch/authorities.ts'
import type { Config } from '../../config/schema.ts'
import { freeDiskGib } from '../../vm/launch/disk.driver.ts'
import { loadBuilderImage } from '../../vm/launch/image.driver.ts'
import type { BuildFacts } from './builds.plan.ts'
import { outcomeOf } from './check.ts'
import { checkImage, measurementOf } from './image-check.driver.ts'

/** Null if service C is off. Never throws. */
export async function collectBuildFacts(config: Config, stateDir: string): Promise<BuildFacts | null> {
  const { listen, vm, builds } = config
  if (listen.builds === '') return null
  const image = await outcomeOf(() => checkImage(builds.image_dir, loadBuilderImage))
  const fetchesNothing = builds.fetch_hosts.length === 0
  return {
    image,
    measurement: image.ok
      ? await outcomeOf(() => measurementOf(loadBuilderImage(builds.image_dir), vm, builds.vcpus))
      : null,
    authorities:
      fetchesNothing || builds.fetch_ca_file === ''
        ? null
        : await outcomeOf(() => {
            readAuthorities(builds.fetch_ca_file)
            return builds.fetch_ca_file
          }),
    freeGib: freeGib(config, stateDir),
  }
}

/** Free space as the daemon counts it. Null before the first start, or without permission. */
function freeGib({ capacity }: Config, stateDir: string): number | null {
  if (capacity.scratch_gib !== 0) return capacity.scratch_gib
  if (!existsSync(`${stateDir}/vms`)) return null
  return resultOr(() => freeDiskGib(stateDir), null)
}
