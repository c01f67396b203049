// Contradictions in the table `snapshots` of the configuration, and with others. Pure.

import { listenOverlap, parseListen, snapshotAddress } from '../listen.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

export function snapshotsProblems(config: Config): CrossProblem[] {
  const { listen, snapshots, builds } = config
  const address = snapshotAddress(config)
  if (address === null) return []
  const holder = (['instances', 'inference', 'builds', 'dns', 'console'] as const).find(name => {
    const taken = listen[name] === '' ? null : parseListen(listen[name])
    return taken !== null && listenOverlap(address, taken)
  })
  const isOfBuilds = listen.builds !== '' && builds.fetch_hosts.length > 0 && builds.fetch_port === snapshots.port
  const taken = holder === undefined ? (isOfBuilds ? 'builds.fetch_port' : null) : `listen.${holder}`
  return [
    ...(taken === null
      ? []
      : [{ field: 'snapshots.port', message: `${snapshots.port} is taken by ${taken}; choose another port` }]),
    ...(snapshots.gib_per_organization > snapshots.gib_max
      ? [
          {
            field: 'snapshots.gib_per_organization',
            message: `${snapshots.gib_per_organization} is more than all may have (snapshots.gib_max, ${snapshots.gib_max})`,
          },
        ]
      : []),
  ]
}
