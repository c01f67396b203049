// Puts the operator's side together: the admin socket with status, metrics and all commands. Effects: one listening socket.

import type { Clock } from '../base/clock.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import type { Collector } from '../base/prometheus.ts'
import type { Config } from '../config/schema.ts'
import { adminSocketName } from '../contract/admin.ts'
import { mintGatewayKey } from '../inference/keys/authenticate.ts'
import { createMetricsHandler } from '../inference/metrics/metrics.ts'
import { mintKey } from '../instances/http/auth.ts'
import type { InstancesService } from '../instances/service.ts'
import { createAdmin } from '../operator/api.ts'
import { createGatewayAdmin } from '../operator/gateway-keys.ts'
import { type AdminServer, listenAdmin } from '../operator/socket.ts'
import { createStatus, type StatusDeps } from '../operator/status.ts'
import type { Store } from '../store/db.ts'
import { vmPaths } from '../vm/launch.plan.ts'
import { findLeaks } from '../vm/leaks.driver.ts'
import type { Engine } from './engine.ts'

export type OperatorParts = {
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly engine: Engine
  readonly service: InstancesService
  readonly collectors: readonly Collector[]
  readonly tls: StatusDeps['tls']
  readonly listening: StatusDeps['listening']
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

/** Faults: conflict (another daemon answers there), host.unsupported. */
export function serveOperator(parts: OperatorParts): Promise<AdminServer> {
  const { config, stateDir, store, engine, service, clock, random } = parts
  const log = parts.log.unit('admin')
  const admin = createAdmin({
    store,
    clock,
    random,
    log,
    mintKey,
    deleteInstance: (instance, organization) => {
      service.remove({ organization, keyPrefix: 'admin', scope: 'write' }, instance.name)
    },
    vm: id => engine.reconciler.view(id),
    status: createStatus(parts),
    leaks: () => findLeaks({ db: store.ledger.db, nft: engine.nft, stateDir, tapPrefix: config.network.tap_prefix }),
    consoleDir: vmId => vmPaths(stateDir, vmId).directory,
  })
  const metrics = createMetricsHandler(parts.collectors)
  const whole = createGatewayAdmin({ store, clock, random, log, mintKey: mintGatewayKey, metrics }, admin)
  return listenAdmin(`${stateDir}/${adminSocketName}`, whole)
}
