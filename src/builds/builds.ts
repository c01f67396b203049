// Service C as a whole: files, events, decisions, reconcilers and HTTP. Effects: those of its parts, after `start`.

import type { Logger } from '../base/log.ts'
import type { Runtime } from '../base/runtime.ts'
import type { EdgeRoute } from '../http/edge.ts'
import type { Store } from '../store/db.ts'
import type { Build } from '../store/directory/build.table.ts'
import type { Admission } from '../vm/admission.plan.ts'
import type { BuildEngine } from '../vm/build-engine.ts'
import type { VmSpec } from '../vm/engine.ts'
import type { HostTrust } from '../vm/evidence/launch-policy.plan.ts'
import { EventLogs } from './events/events.ts'
import type { FollowDeps } from './events/follow.ts'
import { logText } from './events/log-text.ts'
import type { FetchGate } from './fetch/proxy.ts'
import { BuildFiles } from './files.ts'
import type { BuildPeers } from './fleet.ts'
import { Handover } from './handover.ts'
import { ForwardWhenFull } from './http/forward-when-full.ts'
import { type BuildFetch, type BuildPeer, type BuildRoutesDeps, createBuildHttp } from './http/routes.ts'
import { type BootImages, createBootImages } from './oci/boot-images.ts'
import { type PulledImage, resultCommands } from './oci/commands.plan.ts'
import { ociRoutes } from './oci/registry.ts'
import { ownOf } from './order.plan.ts'
import { BuildReconciler } from './reconciler.ts'
import { BuildRetention, type BuildRetentionDeps } from './retention.ts'
import { BuildsService, type BuildsServiceDeps } from './service.ts'
import type { BuildsSettings } from './types.ts'
import { BuildVms } from './vms.ts'

export type BuildsDeps = Runtime & {
  /** Directory of build files. */
  readonly directory: string
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly peers: BuildPeers
  /** Timeout for fetching a source from another host; for tests. */
  readonly fetchTimeoutMs?: number | undefined
  readonly engine: BuildEngine
  readonly guard: BuildRetentionDeps['guard']
  readonly settings: BuildsSettings
  readonly gate: FetchGate
  readonly trust: () => Promise<HostTrust>
  readonly beforeResult: FollowDeps['beforeResult']
  readonly vm: {
    readonly spec: VmSpec
    readonly shape: string
    readonly warm: number
    readonly imageDigest: () => string
    readonly room: () => Admission
  }
  readonly http: Pick<
    BuildRoutesDeps,
    'caller' | 'count' | 'admitPublic' | 'admitChange' | 'strangers' | 'baseUrl' | 'limits' | 'openapi'
  >
  /** Fallback address in output, used before a client has named one and if the configuration names none. */
  readonly ownUrl: string
  /** Routes of the transparency log. */
  readonly others: readonly EdgeRoute<Pick<BuildPeer, 'address'>>[]
  /** Directory of the image that build VMs boot. */
  readonly admitNew: BuildsServiceDeps['admitNew']
  readonly imageDirectory: string
  /** Verification summaries of that image, which the registry serves by their digests. */
  readonly imageSummaries: () => readonly { readonly sha256: string; readonly bytes: Uint8Array }[]
}

/**
 * Limit on clients that follow events at the same time. Share: an eighth for one organization; half for all strangers,
 * a sixteenth for one network.
 */
const readersMax = 1_024

export type Builds = {
  readonly service: BuildsService
  readonly vms: BuildVms
  readonly reconciler: BuildReconciler
  readonly fetch: BuildFetch
  /** Removes the files of an organization's finished builds. */
  readonly removeFilesOf: (organizationId: string) => void
  /** Yields lines of a build's log, for an operator. Faults: not_found (the log was removed), fleet.unavailable. */
  readonly logOf: (build: Build, options: LogOptions) => AsyncIterable<Uint8Array>
  /** Handles a request of another host of the fleet, given by its id (handover.ts, http/forward-when-full.ts). */
  readonly answerHost: (request: Request, from: string) => Promise<Response>
  /** Called after rows of these builds have changed. Never throws, never waits. */
  readonly changed: (ids: readonly string[]) => void
  readonly start: () => void
  readonly stop: () => Promise<void>
}

type LogOptions = { readonly follow: boolean; readonly signal: AbortSignal }

/** Creates the service. Fault internal if the directory cannot be created. */
export function createBuilds(deps: BuildsDeps): Builds {
  const { store, engine, clock, random, log, settings, gate, http, peers } = deps
  const { directory, hostId } = store
  const stopping = new AbortController()
  const files = new BuildFiles(deps.directory)
  const events = new EventLogs(id => files.path(id, 'events'), { settings, nowMs: clock.nowMs })
  const images = createBootImages(new Map([[deps.vm.spec.image, deps.imageDirectory]]))
  const pulled = new PulledImages(images, deps.vm.spec.image, log)
  const commands = (build: Build, baseUrl: string) => resultCommands(build, { baseUrl, image: pulled.current() })
  const retention = new BuildRetention({ ...deps, directory, hostId, files })
  retention.removeOrphans()
  const vms = new BuildVms({ store, engine, clock, random, log, settings, vmSpec: deps.vm.spec, ...deps.vm })
  const makeRoom = (bytes: number) => retention.makeRoom(bytes)
  const handover = new Handover({
    ...{ directory, hostId, peers, files, clock, random, settings },
    logOf: (build, options) => logOf(events, build, { ...options, stopping: stopping.signal }),
  })
  const reconciler = new BuildReconciler({
    ...{ store, handover, engine, clock, random, log },
    files,
    events,
    vms,
    gate,
    makeRoom,
    fetchTimeoutMs: deps.fetchTimeoutMs,
    ...{ trust: deps.trust, beforeResult: deps.beforeResult, settings },
    vmSpec: deps.vm.spec,
    closingLines: (build: Build) => commands(build, http.baseUrl || deps.ownUrl),
  })
  const service = new BuildsService({
    admitNew: deps.admitNew,
    ...{ directory, hostId, clock, random, log },
    settings,
    files,
    events,
    makeRoom,
    reserveVm: (tx, of) => vms.reserve(tx, of),
    holdVm: vmId => vms.hold(vmId),
    onAccepted: build => {
      // Hashing a new image takes seconds, but the build takes longer.
      pulled.refresh()
      reconciler.wake(build.id)
    },
    onCancelled: build => reconciler.wakeCancelled(build),
  })
  const whenFull = new ForwardWhenFull({ directory, peers, service, clock })
  const fetch = createBuildHttp(
    {
      ...http,
      ...{ service, whenFull, files, events, clock, random, log },
      ...{ directory, hostId, peers, readersMax },
      commands,
      isVmUp: vmId => engine.view(vmId)?.state === 'running',
      rules: { ...settings, ...ownOf(settings) },
      signal: stopping.signal,
    },
    [...ociRoutes({ images, admit: http.admitPublic, summaries: deps.imageSummaries }), ...deps.others],
  )
  let loops: Promise<unknown> = Promise.resolve()
  return {
    service,
    vms,
    reconciler,
    fetch,
    removeFilesOf: id => retention.removeFilesOf(id),
    logOf: (build, options) =>
      build.hostId === hostId
        ? logOf(events, build, { ...options, stopping: stopping.signal })
        : handover.logOfOther(build, options),
    answerHost: async (request, from) => whenFull.answer(request) ?? (await handover.answer(request, from)),
    changed: ids => reconciler.changed(ids),
    start: () => {
      pulled.refresh()
      vms.start()
      reconciler.start()
      loops = retention.run(stopping.signal)
    },
    stop: async () => {
      stopping.abort()
      await Promise.all([vms.stop(), reconciler.stop(), loops])
      events.closeAll()
    },
  }
}

/** Images that the registry served at the last check. Reading them never waits. */
class PulledImages {
  readonly #images: BootImages
  readonly #name: string
  readonly #log: Logger
  #current: PulledImage | null = null

  constructor(images: BootImages, name: string, log: Logger) {
    this.#images = images
    this.#name = name
    this.#log = log
  }

  current(): PulledImage | null {
    return this.#current
  }

  refresh(): void {
    this.#images.open(this.#name).then(
      found => {
        this.#current = found && { name: this.#name, digest: found.digest, hasIgvm: found.hasIgvm }
      },
      error => {
        this.#current = null
        this.#log.warn('the registry of the build image cannot be prepared', { error })
      },
    )
  }
}

function logOf(
  events: EventLogs,
  { id, closedAtMs }: Pick<Build, 'id' | 'closedAtMs'>,
  { follow, signal, stopping }: LogOptions & { readonly stopping: AbortSignal },
): AsyncIterable<Uint8Array> {
  const reader = events.reader(id, { afterId: 0, isOpen: closedAtMs === null })
  return logText(reader, { follow, signal: AbortSignal.any([signal, stopping]) })
}
