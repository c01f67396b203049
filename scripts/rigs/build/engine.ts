// The VM engine as service C sees it, without VMs: each VM has a guest that plays a script. Evidence is of the
// simulated platform. Effects: one exchange file per VM, in the caller's directory.

import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../../../src/attest/hash.ts'
import { NETWORK_POLICIES } from '../../../src/attest/provenance/network-policy.ts'
import { type HybridKeys, makeHybridKeys, portableSigner } from '../../../src/attest/receipt/hybrid-keys.ts'
import { issueReceipt } from '../../../src/attest/receipt/issue.ts'
import type { StatementFields } from '../../../src/attest/receipt/new-statement.ts'
import { decodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import type { SimulatedReport } from '../../../src/attest/simulator/report.ts'
import { fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { orderWords } from '../../../src/builder/order.plan.ts'
import type { BuildErrorType, BuildStep } from '../../../src/contract/http/build.ts'
import type { AttestedStage, BuildLine, BuildProgress } from '../../../src/contract/vm/build-agent.ts'
import type { BuildOrder } from '../../../src/contract/vm/build-order.ts'
import { launchText } from '../../../src/contract/vm/launch.ts'
import type { BuildEngine } from '../../../src/vm/build-engine.ts'
import type { VmEvidence, VmFailureCode, VmView } from '../../../src/vm/engine.ts'
import { countingRandom, measurement, operatorKey, simulatedSource } from '../gateway/receipt-samples.ts'
import { launchDocument } from '../guest/attested-guest.ts'
import { simulatedAsOf } from '../launch/simulated-platform.ts'

export const builderLaunch = { ...launchDocument, image: { ...launchDocument.image, name: 'builder' } }

type Fields = Partial<Extract<StatementFields, { kind: 'build' }>> &
  Partial<Omit<Extract<StatementFields, { kind: 'build-dispatch' }>, 'kind'>>

/** A guest's next step. */
export type Step =
  | { readonly kind: 'line'; readonly type: BuildStep; readonly msg: string }
  | { readonly kind: 'network'; readonly network: BuildProgress['network'] }
  /** Waits for the host's evidence; `fields` and `report` are what it differs in from what it ought to be. */
  | {
      readonly kind: 'vouch'
      readonly stage: AttestedStage
      readonly fields?: Fields
      readonly report?: Partial<SimulatedReport>
      readonly launch?: string
    }
  | { readonly kind: 'wait'; readonly until: Promise<unknown> }
  | { readonly kind: 'failed'; readonly errorType: BuildErrorType; readonly error: string }
  /** `bytes`: the archive, in place of resultOf. */
  | {
      readonly kind: 'ok'
      readonly bytes?: Uint8Array
      readonly change?: Partial<Extract<BuildProgress['result'], { status: 'ok' }>>
    }

export const line = (type: BuildStep, msg: string): Step => ({ kind: 'line', type, msg })

/** Steps of a guest that does its work. */
export const goodScript: readonly Step[] = [
  line('init', 'unpacked'),
  line('detect', 'cargo'),
  { kind: 'vouch', stage: 'dispatch' },
  line('build', 'compiling'),
  line('provenance', 'written'),
  { kind: 'vouch', stage: 'completion' },
  line('attest', 'done'),
  { kind: 'ok' },
]

/** The archive that a guest makes of its source. */
export function resultOf(source: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from('result of '), source])
}

const provenance = sha256(utf8('provenance'))
const sourceTree = sha256(utf8('source tree'))

type Guest = {
  readonly keys: HybridKeys
  order: BuildOrder | null
  source: Uint8Array
  at: number
  lines: BuildLine[]
  network: BuildProgress['network']
  waitsFor: AttestedStage | null
  result: BuildProgress['result']
  dispatch: Uint8Array | null
  /** The host's record, as of the last evidence. */
}

type Vm = { view: VmView; readonly guest: Guest }

/** Which call is cut short, and whether its work is done: as when the daemon is killed around it. */
/** `handing`: evidence that was accepted, to the guest. */
export type Cut = {
  readonly op: keyof BuildEngine | 'handing'
  readonly when: 'before' | 'after'
  readonly nth: number
}

export type FakeBuildEngine = {
  /** An engine for one daemon: once it is `dead`, nothing that it does has an effect or comes back. */
  readonly connect: () => { readonly engine: BuildEngine; kill: () => void }
  /** Script of guests that get their order from now on. */
  script: readonly Step[]
  /** Whether VMs come up by themselves. */
  boots: boolean
  readonly up: (vmId: string) => void
  readonly fail: (vmId: string, code: VmFailureCode, message: string) => void
  readonly vms: () => readonly VmView[]
  /** Every call with an effect, in order. */
  readonly calls: string[]
  /** Jobs that guests have taken up, in order: one that runs twice is here twice. */
  readonly jobs: string[]
  /** The next call that is cut; `cut.hit` resolves then. */
  cutAt: (cut: Cut) => Promise<void>
  /** Connections that end during the next hand-overs of evidence, before or after the guest has it. */
  losses: ('before' | 'after')[]
  /** Takes the place of a guest's answer. */
  progress: ((vmId: string, from: number) => Promise<BuildProgress>) | null
  readonly exchange: (vmId: string) => string
  /** The last one that a guest got. */
  ordered: BuildOrder | null
}

/** Verified summary of every VM's image. */
export const imageSummary = 'f5'.repeat(32)

export const exchangeBytes = 4 * 1_048_576

export function fakeBuildEngine(directory: string): FakeBuildEngine {
  const vms = new Map<string, Vm>()
  const listeners = new Set<(vmId: string) => void>()
  const calls: string[] = []
  const jobs: string[] = []
  let cut: { readonly at: Cut; left: number; readonly hit: () => void } | null = null
  const exchange = (vmId: string) => join(directory, `exchange-${vmId}`)
  const changed = (vmId: string) => {
    for (const listener of [...listeners]) listener(vmId)
  }
  const set = (vmId: string, view: Partial<VmView>) => {
    const vm = vms.get(vmId)
    if (vm === undefined) return
    vm.view = { ...vm.view, ...view }
    changed(vmId)
  }
  const up = (vmId: string) =>
    set(vmId, { state: 'running', address: '127.0.0.1', guest: { boxKey: 'k', sshHostKey: 's', claimId: null } })
  const guestOf = (vmId: string): Guest => {
    const vm = vms.get(vmId)
    if (vm === undefined || vm.view.state !== 'running') throw new Fault('channel.closed', `VM ${vmId} is not attached`)
    return vm.guest
  }
  const world: FakeBuildEngine = {
    script: goodScript,
    boots: true,
    progress: null,
    losses: [],
    ordered: null,
    calls,
    jobs,
    exchange,
    up,
    fail: (vmId, failureCode, failureMessage) => set(vmId, { state: 'failed', failureCode, failureMessage }),
    vms: () => [...vms.values()].map(({ view }) => view),
    cutAt: at => {
      const hit = Promise.withResolvers<void>()
      cut = { at, left: at.nth, hit: hit.resolve }
      return hit.promise
    },
    connect: () => {
      let isDead = false
      const never = new Promise<never>(() => {})
      const own = new Set<(vmId: string) => void>()
      /** True if this is the call that is cut. */
      const isCut = (op: Cut['op'], when: Cut['when']): boolean => {
        if (cut === null || cut.at.op !== op || cut.at.when !== when) return false
        cut.left -= 1
        if (cut.left > 0) return false
        cut.hit()
        cut = null
        isDead = true
        return true
      }
      const call = async <T>(op: Cut['op'], work: () => T | Promise<T>): Promise<T> => {
        if (isDead || isCut(op, 'before')) return never
        const value = await work()
        return isDead || isCut(op, 'after') ? never : value
      }
      const effect = (op: Cut['op'], vmId: string, work: () => void) => {
        // A dead daemon comes no further than this.
        if (isDead || isCut(op, 'before')) throw new Error('killed')
        calls.push(`${op} ${vmId}`)
        work()
        if (isCut(op, 'after')) throw new Error('killed')
      }
      const engine: BuildEngine = {
        define: vmId =>
          effect('define', vmId, () => {
            if (vms.has(vmId)) return
            vms.set(vmId, { view: waiting(vmId), guest: newGuest(vms.size) })
            const fd = openSync(exchange(vmId), 'w', 0o600)
            ftruncateSync(fd, exchangeBytes)
            closeSync(fd)
            if (world.boots) up(vmId)
            else changed(vmId)
          }),
        dismiss: vmId => effect('dismiss', vmId, () => set(vmId, { state: 'gone', address: null, guest: null })),
        view: vmId => vms.get(vmId)?.view ?? null,
        onChange: listener => {
          const guarded = (vmId: string) => {
            if (!isDead) listener(vmId)
          }
          own.add(guarded)
          listeners.add(guarded)
        },
        open: vmId => effect('open', vmId, () => set(vmId, { opened: true })),
        close: vmId => effect('close', vmId, () => set(vmId, { opened: false })),
        exchange,
        imageSummary: () => imageSummary,
        order: (vmId, order) =>
          call('order', () => {
            const guest = guestOf(vmId)
            calls.push(`order ${vmId}`)
            world.ordered = order
            if (guest.order === null) jobs.push(order.jobId)
            takeOrder(guest, order, exchange(vmId))
          }),
        progress: (vmId, from) =>
          call('progress', () => {
            const guest = guestOf(vmId)
            if (world.progress !== null) return world.progress(vmId, from)
            if (guest.order === null) throw new Fault('channel.refused', 'unclaimed: no order')
            advance(guest, world.script, exchange(vmId))
            const { network, waitsFor, result } = guest
            return { lines: guest.lines.slice(from, from + 64), network, waitsFor, result }
          }),
        vouch: (vmId, { stage }, accept) =>
          call('vouch', async () => {
            calls.push(`vouch ${vmId} ${stage}`)
            const guest = guestOf(vmId)
            const evidence = await vouch(guest, stage, world.script)
            if (!(await accept(evidence))) return
            await call('handing', () => {
              const loss = world.losses.shift()
              if (loss === 'before') throw new Fault('channel.closed', `VM ${vmId}: the connection ended`)
              if (stage === 'dispatch') guest.dispatch = decodeReceipt(evidence.receipt).statement
              guest.waitsFor = null
              guest.at += 1
              if (loss === 'after') throw new Fault('channel.closed', `VM ${vmId}: the connection ended`)
            })
          }),
        cancel: () => call('cancel', () => {}),
      }
      return {
        engine,
        kill: () => {
          isDead = true
          for (const listener of own) listeners.delete(listener)
        },
      }
    },
  }
  return world
}

function waiting(id: string): VmView {
  const nothing = {
    address: null,
    addressV6: null,
    failureCode: null,
    failureMessage: null,
    failedAtMs: null,
    guest: null,
  }
  return { id, state: 'booting', platform: 'tcg', opened: false, ...nothing }
}

function newGuest(seed: number): Guest {
  const keys = makeHybridKeys(countingRandom(100 + seed))
  const nothing = { order: null, source: new Uint8Array(0), at: 0, lines: [], waitsFor: null, result: null }
  return { keys, network: 'unused', dispatch: null, ...nothing }
}

function takeOrder(guest: Guest, order: BuildOrder, path: string): void {
  if (guest.order !== null) {
    if (guest.order.jobId !== order.jobId) throw new Fault('channel.refused', 'claimed: another job')
    return
  }
  const { source } = order
  if (source.kind === 'archive') {
    const bytes = readFileSync(path).subarray(0, source.sizeBytes)
    if (toHex(sha256(bytes)) !== source.sha256) throw new Fault('channel.refused', 'failed: another source')
    guest.source = bytes
  } else guest.source = utf8(source.url)
  guest.order = order
}

/** As far as the script goes by itself. */
function advance(guest: Guest, script: readonly Step[], path: string): void {
  for (let step = script[guest.at]; step !== undefined; step = script[guest.at]) {
    switch (step.kind) {
      case 'line':
        guest.lines.push({ seq: guest.lines.length, type: step.type, msg: step.msg })
        break
      case 'network':
        guest.network = step.network
        break
      case 'vouch':
        guest.waitsFor = step.stage
        return
      case 'wait': {
        const at = guest.at
        void step.until.then(() => {
          if (guest.at === at) guest.at += 1
        })
        return
      }
      case 'failed':
        guest.result = { status: 'failed', errorType: step.errorType, error: step.error }
        return
      case 'ok': {
        const bytes = step.bytes ?? resultOf(guest.source)
        const fd = openSync(path, 'r+')
        writeSync(fd, bytes, 0, bytes.length, 0)
        closeSync(fd)
        guest.result = {
          status: 'ok',
          sizeBytes: bytes.length,
          sha256: toHex(sha256(bytes)),
          provenanceSha256: toHex(provenance),
          ...step.change,
        }
        return
      }
    }
    guest.at += 1
  }
}

async function vouch(guest: Guest, stage: AttestedStage, script: readonly Step[]): Promise<VmEvidence> {
  const step = script[guest.at]
  const { order, keys } = guest
  if (order === null || step?.kind !== 'vouch' || step.stage !== stage) {
    throw new Fault('channel.refused', 'unclaimed: no evidence is pending')
  }
  const launch = step.launch ?? launchText(builderLaunch)
  const common = {
    nonce: fromHex(order.nonce) ?? new Uint8Array(0),
    operatorKey,
    image: { name: builderLaunch.image.name, measurement },
    sourceDigest: sourceTree,
    networkPolicy: order.fetch === null ? NETWORK_POLICIES.none : NETWORK_POLICIES.fetchOnly,
  }
  const { jobId, ...rest } = step.fields ?? {}
  const fields: StatementFields =
    stage === 'dispatch'
      ? { ...common, ...orderWords(order), kind: 'build-dispatch', jobId: jobId ?? order.jobId, ...(rest as object) }
      : {
          ...common,
          kind: 'build',
          dispatchDigest: sha256(guest.dispatch ?? new Uint8Array(0)),
          provenanceDigest: provenance,
          ...(rest as object),
        }
  const receipt = await issueReceipt({
    fields,
    publicKeys: keys.publicKeys,
    sign: portableSigner(keys.secretKeys, countingRandom(50)),
    evidenceSource: simulatedSource({ hostData: sha256(utf8(launch)), ...step.report }),
    platform: 'simulated',
    nowMs: simulatedAsOf.getTime(),
  })
  return { receipt, launch, operatorKey, simulated: true }
}
