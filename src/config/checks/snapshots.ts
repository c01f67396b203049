// Contradictions in the table `snapshots` of the configuration, and with others. Pure.

import { LISTENERS, listenOverlap, parseListen, snapshotAddress } from '../listen.ts'
import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

export function snapshotsProblems(config: Config): CrossProblem[] {
  const { snapshots } = config
  const taken = portHolder(config)
  return [
    ...(taken === null
      ? []
      : [{ field: 'snapshots.port', message: `${snapshots.port} is taken by ${taken}; choose another port` }]),
    ...(snapshotAddress(config) !== null && snapshots.gib_per_organization > snapshots.gib_max
      ? [
          {
            field: 'snapshots.gib_per_organization',
            message: `${snapshots.gib_per_organization} is more than all may have (snapshots.gib_max, ${snapshots.gib_max})`,
          },
        ]
      : []),
  ]
}

/** Returns the field that has the port of snapshots; null if none has, or snapshots are off. */
function portHolder(config: Config): string | null {
  const { listen, snapshots, builds } = config
  const address = snapshotAddress(config)
  if (address === null) return null
  const holder = LISTENERS.find(name => {
    const taken = listen[name] === '' ? null : parseListen(listen[name])
    return taken !== null && listenOverlap(address, taken)
  })
  if (holder !== undefined) return `listen.${holder}`
  const isOfBuilds = listen.builds !== '' && builds.fetch_hosts.length > 0 && builds.fetch_port === snapshots.port
  return isOfBuilds ? 'builds.fetch_port' : null
}

/** Tried in this order when the file names no port. There are as many as fields that may have one, and one more. */
const portsTried = 8

/** Takes the next port if the file names none and another field has the default: the file was right before. */
export function withFreeSnapshotPort(config: Config): Config {
  const { port } = config.snapshots
  const moved = Array.from({ length: portsTried }, (_, offset) => {
    return { ...config, snapshots: { ...config.snapshots, port: port + offset } }
  })
  return moved.find(candidate => portHolder(candidate) === null) ?? config
}
