// Service A's decisions: create, read, delete, usage. Effects: the store's directory, and callbacks after a commit.
// Handlers only change desired state; the reconcilers create and remove VMs.

import { Value } from '@sinclair/typebox/value'
import { assert, present } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid, type RandomBytes, randomName } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { dayMs } from '../base/time.ts'
import { egressPolicyText } from '../contract/http/egress-policy.ts'
import {
  InstanceCreated,
  type InstanceRecord,
  idempotencyTtlMs,
  instanceNameLength,
  instanceNamePattern,
  supportedAgent,
  supportedInferenceMode,
  type UsageSummary,
} from '../contract/http/instance.ts'
import { LimitedFault, UnavailableFault } from '../http/limited.ts'
import type { DirectoryDb, DirectoryStore, DirectoryTx } from '../store/db.ts'
import { findIdempotency, insertIdempotency } from '../store/directory/idempotency.query.ts'
import {
  earliestTermination,
  findInstance,
  insertInstance,
  instanceById,
  moveInstance,
  nthNewestCreation,
} from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { findKey } from '../store/directory/key.query.ts'
import { organizationById, organizationMemoryMib, type VmMemory } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import type { Period } from './billing.ts'
import { type CreateRequest, canonicalCreate } from './create.codec.ts'
import type { InstanceStart } from './pool.plan.ts'
import { toCreated, toRecord } from './record.ts'
import { RecordLists } from './record-texts.ts'
import { recordsKeptMs, retentionIntervalMs } from './retention.ts'
import { type UsagePrices, usageOf } from './usage.ts'

export type InstancesSettings = {
  readonly domain: string
  /** The first model is the default. */
  readonly inferenceModels: readonly string[]
  readonly instancesPerOrganizationMax: number
  readonly createsPerDayMax: number
  readonly recordsPerOrganizationMax: number
  readonly retentionDays: number
} & VmMemory &
  UsagePrices

export type InstancesDeps = {
  readonly directory: DirectoryStore
  /** Platform of new VMs. */
  readonly platform: NonNullable<Instance['platform']>
  readonly clock: Pick<Clock, 'nowMs'>
  /** Called in the transaction of each create that is no repetition. Throws UnavailableFault during maintenance. */
  readonly admitNew: () => void
  /** Reports whether the clock is trusted. If not, no stored response counts as expired. */
  readonly isClockTrusted: () => boolean
  readonly random: RandomBytes
  readonly log: Logger
  readonly settings: InstancesSettings
  /**
   * Chooses the VM of a new instance, in the transaction that inserts it. The id is null if the instance's host
   * chooses.
   */
  readonly takeVm: (tx: DirectoryDb) => ChosenVm
  /** Called after the commit, once per instance, to wake the host's reconciler. Errors are logged. */
  readonly onCreated: (instance: Instance, start: InstanceStart) => void
  readonly onDeleted: (instance: Instance) => void
  /** Returns the inference spend of an organization within a period, in whole micro-dollars. */
  readonly inferenceCostMicroUsd: (organizationId: string, period: Period) => bigint
}

export type ChosenVm = { readonly vmId: string | null; readonly start: InstanceStart }

/** The authenticated caller, made by http/auth. */
export type Principal = {
  readonly organization: Organization
  /** The public part of the caller's key; `operatorPrefix` for the operator. */
  readonly keyPrefix: string
}

/** Prefix that no key has. */
export const operatorPrefix = 'admin'

/** Data of instances with the platforms they run on, each once; null if unknown. */
export type RecordView<T> = { readonly data: T; readonly platforms: readonly Instance['platform'][] }

/** A long document whose parts are cached as bytes. */
export type JsonPieces = readonly (string | Uint8Array)[]

export type InstancesService = {
  /**
   * Creates an instance. Faults: invalid_request, conflict, forbidden, unauthenticated, rate_limited. A repeated key
   * gets its first response, verbatim.
   */
  readonly create: (
    caller: Principal,
    request: CreateRequest,
    idempotencyKey: string | null,
  ) => Promise<RecordView<InstanceCreated>>
  /** Returns an InstanceList as pieces of its JSON, in order. */
  readonly list: (caller: Principal) => Promise<RecordView<JsonPieces>>
  /** Returns a record. Fault not_found. */
  readonly retrieve: (caller: Principal, name: string) => Promise<RecordView<InstanceRecord>>
  /** Deletes an instance. Accepted in every state and idempotent. Fault not_found. */
  readonly remove: (caller: Principal, name: string) => Promise<RecordView<InstanceRecord>>
  /** Ends an instance of this host whose idle time is over. No effect if it has ended. */
  readonly endIdle: (instance: Instance) => Promise<void>
  readonly usage: (caller: Principal) => Promise<UsageSummary>
}

const nameAttemptsMax = 16
const createdStatus = 202
const noPlaceRetryMs = 10_000

export function createInstancesService(deps: InstancesDeps): InstancesService {
  const { directory, clock, settings } = deps
  assert(settings.inferenceModels.length > 0, 'there is a default model')
  const recordLists = new RecordLists(directory.db)
  const read = <T>(caller: Principal, work: (db: DirectoryDb) => T | Promise<T>) =>
    directory.read({ assertAllowed: db => assertStillAllowed(db, caller) }, work)

  const afterCommit = (instance: Instance, callback: (instance: Instance) => void) => {
    try {
      callback(instance)
    } catch (error) {
      deps.log.error('an instance callback failed', { instance: instance.id, status: instance.status, error })
    }
  }

  return {
    create: async (caller, request, idempotencyKey) => {
      const isClockTrusted = idempotencyKey === null || deps.isClockTrusted()
      const outcome = await directory.change(tx => {
        assertStillAllowed(tx, caller)
        const attempt = {
          organizationId: caller.organization.id,
          key: idempotencyKey,
          request,
          nowMs: tx.nowMs,
          isClockTrusted,
        }
        const earlier = earlierResponse(tx, attempt)
        if (earlier !== null) {
          const instance = findInstance(tx, { organizationId: attempt.organizationId, name: earlier.name })
          return { kind: 'repeated', data: earlier, platforms: [instance?.platform ?? null] } as const
        }
        const { instance, start } = addInstance(tx, deps, caller, request)
        const data = toCreated(instance)
        storeResponse(tx, attempt, data)
        return { kind: 'created', instance, start, data, platforms: [instance.platform] } as const
      })
      if (outcome.kind === 'created') {
        const { instance, start } = outcome
        afterCommit(instance, () => deps.onCreated(instance, start))
      }
      return { data: outcome.data, platforms: outcome.platforms }
    },

    list: async caller => {
      const { list, platforms } = await read(caller, () => recordLists.of(caller.organization.id))
      return { data: ['{"instances":', list, ',"next_cursor":null}'], platforms }
    },

    retrieve: (caller, name) => read(caller, db => shown(ownInstance(db, caller, name))),

    remove: async (caller, name) => {
      const outcome = await directory.change(tx => {
        // Another host may have revoked the key since this host looked it up.
        if (caller.keyPrefix !== operatorPrefix) assertStillAllowed(tx, caller)
        const instance = ownInstance(tx, caller, name)
        if (instance.status === 'terminated') return { moved: false, instance }
        const moved = instance.status !== 'terminating'
        if (moved) beginEnd(tx, instance, 'deleted_via_api')
        if (tx.hosts.find(instance.hostId)?.isLost !== false) endWithoutHost(tx, instance.id)
        return { moved, instance: present(instanceById(tx, instance.id), 'a moved instance is still there') }
      })
      if (outcome.moved) afterCommit(outcome.instance, deps.onDeleted)
      return shown(outcome.instance)
    },

    endIdle: async ({ id }) => {
      const ended = await directory.change(tx => {
        const instance = instanceById(tx, id)
        if (instance?.status !== 'ready') return null
        beginEnd(tx, instance, 'idle')
        return present(instanceById(tx, id), 'a moved instance is still there')
      })
      if (ended !== null) afterCommit(ended, deps.onDeleted)
    },

    usage: caller => {
      const { organization } = caller
      const { inferenceCostMicroUsd } = deps
      const samples = directory.refreshSamples('instance_egress', organization.id)
      return read(caller, async db => {
        await samples
        return usageOf(db, { organization, prices: settings, nowMs: clock.nowMs(), inferenceCostMicroUsd })
      })
    },
  }
}

function shown(instance: Instance): RecordView<InstanceRecord> {
  return { data: toRecord(instance), platforms: [instance.platform] }
}

type EndReason = NonNullable<InstanceRecord['terminated_reason']>

function beginEnd(tx: DirectoryTx, { id, status: from }: Instance, terminatedReason: EndReason): void {
  const ending = { desired: 'absent', terminatedReason } as const
  const moved = moveInstance(tx, { id, from, to: 'terminating', nowMs: tx.nowMs, ...ending })
  assert(moved, 'an immediate transaction sees no other writer')
}

/**
 * Ends an instance whose host has left the fleet or was given up. If the host returns, it ends a VM that it still has.
 */
function endWithoutHost(tx: DirectoryTx, id: string): void {
  moveInstance(tx, { id, from: 'terminating', to: 'terminated', nowMs: tx.nowMs, terminatedAtMs: tx.nowMs })
}

/** Checks the caller again: a body may arrive slowly, and the rights at the headers must still hold at the commit. */
export function assertStillAllowed(tx: DirectoryDb, caller: Principal): void {
  if (organizationById(tx, caller.organization.id)?.status !== 'active') {
    throw new Fault('forbidden', 'The organization is suspended.')
  }
  const key = findKey(tx, caller.keyPrefix)
  if (key === null || key.revokedAtMs !== null) throw new Fault('unauthenticated', 'The API key has been revoked.')
}

type Attempt = {
  readonly organizationId: string
  readonly key: string | null
  readonly request: CreateRequest
  readonly nowMs: number
  readonly isClockTrusted: boolean
}

/**
 * Returns the response under this key within the last 24 hours, or null. Checked before limits and models, which may
 * have changed.
 */
function earlierResponse(tx: DirectoryDb, attempt: Attempt): InstanceCreated | null {
  if (attempt.key === null) return null
  const kept = findIdempotency(tx, { organizationId: attempt.organizationId, key: attempt.key })
  if (kept === null || (attempt.isClockTrusted && attempt.nowMs - kept.createdAtMs >= idempotencyTtlMs)) return null
  if (!kept.bodySha256.equals(bodySha256(attempt.request))) {
    throw new Fault('conflict', 'This Idempotency-Key was used with a different body in the last 24 hours.', {
      param: 'Idempotency-Key',
    })
  }
  const data: unknown = JSON.parse(kept.responseData)
  assert(Value.Check(InstanceCreated, data), 'a stored response is what was sent')
  return data
}

function storeResponse(tx: DirectoryDb, attempt: Attempt, data: InstanceCreated): void {
  if (attempt.key === null) return
  insertIdempotency(tx, {
    organizationId: attempt.organizationId,
    key: attempt.key,
    bodySha256: bodySha256(attempt.request),
    responseStatus: createdStatus,
    responseData: JSON.stringify(data),
    nowMs: attempt.nowMs,
  })
}

function bodySha256(request: CreateRequest): Uint8Array {
  return new Bun.CryptoHasher('sha256').update(canonicalCreate(request)).digest()
}

type CreatedInstance = { readonly instance: Instance; readonly start: InstanceStart }

/** Writes only the row, with the id of a pool VM or of a new one, which the host's reconciler creates. */
function addInstance(tx: DirectoryTx, deps: InstancesDeps, caller: Principal, request: CreateRequest): CreatedInstance {
  const { settings, random, platform } = deps
  const { organization } = caller
  const inferenceModel = request.inferenceModel ?? settings.inferenceModels[0]
  if (inferenceModel === undefined || !settings.inferenceModels.includes(inferenceModel)) {
    throw new Fault('invalid_request', `inference_model must be one of: ${settings.inferenceModels.join(', ')}`, {
      param: 'inference_model',
    })
  }
  // Read it in this transaction, because the caller's value was read with the headers.
  const owner = present(organizationById(tx, organization.id), 'a caller has an organization')
  assertWithinQuotas(tx, settings, owner)
  assertWithinLimits(tx, settings, owner)
  deps.admitNew()
  const hostId = placeInstance(tx, platform)
  const { vmId, start } = deps.takeVm(tx)
  for (let attempt = 0; attempt < nameAttemptsMax; attempt += 1) {
    const name = randomName(instanceNameLength, random)
    const instance = insertInstance(tx, {
      id: newUuid(random),
      hostId,
      organizationId: organization.id,
      name,
      hostname: `${name}.${organization.slug}.${settings.domain}`,
      agent: supportedAgent,
      publicKey: request.sentKey ?? request.publicKey,
      inferenceMode: supportedInferenceMode,
      inferenceModel,
      vmId,
      platform,
      egressPolicy: request.egress === null ? null : egressPolicyText(request.egress),
      nowMs: tx.nowMs,
    })
    if (instance !== null) return { instance, start }
  }
  throw new Fault('internal', `no free instance name in ${nameAttemptsMax} attempts`)
}

/** Returns the id of the host for a new instance. Fault fleet.unavailable if no host meets all conditions. */
function placeInstance(tx: DirectoryTx, platform: InstancesDeps['platform']): string {
  const placement = tx.hosts.place({ platform })
  if (placement.kind === 'placed') return placement.hostId
  const message = `No host of this fleet can take the instance: ${placement.reason}. Nothing was created; send the request again later.`
  throw new UnavailableFault(message, noPlaceRetryMs, { code: 'fleet.unavailable' })
}

/** Limits instances and the memory of all VMs. Throws Fault conflict. */
function assertWithinQuotas(tx: DirectoryTx, settings: InstancesSettings, organization: Organization): void {
  const { livingCount, quotas } = organization
  const most = quotas?.instances ?? settings.instancesPerOrganizationMax
  if (most === 0) throw new Fault('conflict', 'The operator allows this organization no instances; ask the operator.')
  if (livingCount >= most) {
    throw new Fault('conflict', `The organization has its limit of ${most} instances; delete one first.`)
  }
  const mostMib = quotas?.memory_mib ?? null
  if (mostMib === null) return
  const { instanceMemoryMib } = settings
  const usedMib = organizationMemoryMib(tx, organization, settings)
  if (usedMib + instanceMemoryMib <= mostMib) return
  const need = `An instance takes ${instanceMemoryMib} MiB of memory, and the organization uses ${usedMib} of its ${mostMib} MiB`
  const remedy =
    instanceMemoryMib > mostMib ? 'ask the operator' : 'delete an instance, or wait for its builds to finish'
  throw new Fault('conflict', `${need}; ${remedy}.`)
}

/** Limits recent creates and kept records: a record stays for a month, whatever happens to its instance. */
function assertWithinLimits(
  tx: DirectoryTx,
  { recordsPerOrganizationMax, retentionDays, ...settings }: InstancesSettings,
  { id: organizationId, recordCount, quotas }: Organization,
): void {
  const { nowMs } = tx
  const mostPerDay = quotas?.creates_per_day ?? settings.createsPerDayMax
  if (recordCount >= recordsPerOrganizationMax) {
    const removedAtMs =
      (earliestTermination(tx, organizationId) ?? nowMs) + recordsKeptMs(retentionDays) + retentionIntervalMs
    const message = `The organization has its limit of ${recordsPerOrganizationMax} records, those of terminated instances included; ask the operator.`
    throw new LimitedFault(message, removedAtMs - nowMs)
  }
  // All records of the last 24 hours exist: none is removed within 30 days.
  if (recordCount < mostPerDay) return
  const first = nthNewestCreation(tx, { organizationId, nth: mostPerDay, sinceMs: nowMs - dayMs })
  if (first !== null) {
    const message = `The organization has created its limit of ${mostPerDay} instances within 24 hours.`
    throw new LimitedFault(message, Math.min(dayMs, first + dayMs - nowMs))
  }
}

/** Returns an instance of the caller's organization. Fault not_found, also for another organization's instance. */
export function ownInstance(db: DirectoryDb, caller: Principal, name: string): Instance {
  const key = { organizationId: caller.organization.id, name }
  const instance = instanceNamePattern.test(name) ? findInstance(db, key) : null
  if (instance === null) throw new Fault('not_found', 'There is no instance of this name.')
  return instance
}
