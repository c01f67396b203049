// The commands, in the order of the help. Each loads its own code alone, and only when a command line requests it:
// most of them start a program that has little to do. Effects: loads modules.

import { type AddCommand, type Loaders, loadNamed, namedIn } from '../terminal/loading.ts'
import type { Run } from './operator-run.ts'

const COMMANDS: Loaders<Run> = {
  init: async () => (await import('./init/init.ts')).addInit,
  serve: async () => (await import('./serve.ts')).addServe,
  status: async () => (await import('./operator/status.ts')).addStatus,
  org: async () => (await import('./operator/org.ts')).addOrg,
  key: async () => (await import('./operator/key.ts')).addKey,
  gateway: async () => (await import('./operator/gateway.ts')).addGateway,
  instance: async () => (await import('./operator/instance.ts')).addInstance,
  builds: async () => (await import('./operator/builds.ts')).addBuilds,
  inference: async () => (await import('./operator/inference.ts')).addInference,
  upstream: async () => (await import('./upstream/upstream.ts')).addUpstream,
  model: async () => (await import('./operator/model.ts')).addModels,
  billing: async () => (await import('./operator/organizations/billing.ts')).addBilling,
  metrics: async () => (await import('./operator/gateway.ts')).addMetrics,
  alerts: async () => (await import('./operator/alerts.ts')).addAlerts,
  clock: async () => (await import('./operator/clock.ts')).addClock,
  maintenance: async () => (await import('./operator/maintenance.ts')).addMaintenance,
  log: async () => (await import('./operator/log.ts')).addLog,
  console: async () => (await import('./operator/console.ts')).addConsole,
  fleet: async () => (await import('./fleet/fleet.ts')).addFleet,
  events: async () => (await import('./operator/events.ts')).addEvents,
  doctor: async () => (await import('./doctor/doctor.ts')).addDoctor,
  config: async () => (await import('./config.ts')).addConfig,
  'operator-key': async () => (await import('./operator/operator-key.ts')).addOperatorKey,
  chips: async () => (await import('./fleet/chips.ts')).addChips,
  backup: async () => (await import('./backup/backup.ts')).addBackup,
  'backup-key': async () => (await import('./backup/backup.ts')).addBackupKey,
  restore: async () => (await import('./backup/backup.ts')).addRestore,
  upgrade: async () => (await import('./upgrade/upgrade.ts')).addUpgrade,
  downgrade: async () => (await import('./backup/downgrade.ts')).addDowngrade,
  teardown: async () => (await import('./operator/teardown.ts')).addTeardown,
  client: async () => (await import('../client/setup/client.ts')).addClient,
  up: async () => (await import('../client/instances/up.ts')).addUp,
  snapshot: async () => (await import('../client/snapshot.ts')).addSnapshot,
  ls: async () => (await import('../client/instances/ls.ts')).addLs,
  ssh: async () => (await import('../client/ssh.ts')).addSsh,
  cp: async () => (await import('../client/instances/cp.ts')).addCp,
  egress: async () => (await import('../client/orders/egress.ts')).addEgress,
  keys: async () => (await import('../client/orders/keys.ts')).addKeys,
  secret: async () => (await import('../client/orders/secret.ts')).addSecret,
  idle: async () => (await import('../client/orders/idle.ts')).addIdle,
  keep: async () => (await import('../client/orders/idle.ts')).addKeep,
  publish: async () => (await import('../client/orders/publish.ts')).addPublish,
  unpublish: async () => (await import('../client/orders/publish.ts')).addUnpublish,
  usage: async () => (await import('../client/instances/usage.ts')).addUsage,
  rm: async () => (await import('../client/instances/rm.ts')).addRm,
  verify: async words => await (await import('../client/verify-commands.ts')).loadVerify(words),
  show: async () => (await import('../client/show/show.ts')).addShow,
  connect: async words => await (await import('../client/connect/load.ts')).loadConnect(words),
  build: async () => (await import('../client/build/build.ts')).addBuild,
  measure: async () => (await import('../client/measure/measure.ts')).addMeasure,
  igvm: async () => (await import('../client/measure/igvm.ts')).addIgvm,
  'id-block': async () => (await import('../client/id-block/id-block.ts')).addIdBlock,
  verity: async () => (await import('../client/measure/verity.ts')).addVerity,
  help: async () => (await import('./help/help.ts')).addHelp,
  version: async () => (await import('./version.ts')).addVersion,
}

/** One loader for each command of the program. */
export const commandNames: readonly string[] = Object.keys(COMMANDS)

/** All of them unless the command line names one. */
export function loadCommands(argv: readonly string[] = []): Promise<AddCommand<Run>[]> {
  return loadNamed(COMMANDS, argv)
}

export function namedCommands(argv: readonly string[]): readonly string[] {
  return namedIn(COMMANDS, argv)
}
