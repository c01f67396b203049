// The instance that a name of this machine stands for: found, taken over from the service, or created. Effects:
// requests to service A, the files of the names and of known hosts.

import { parsed } from '../../attest/malformed.ts'
import type { Clock } from '../../base/clock.ts'
import { newUuid } from '../../base/ids.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { readSshKey } from '../../verifier/ssh-key.ts'
import { forgetKnownHost } from '../known-hosts.ts'
import { failureWords } from './failure-remedies.ts'
import type { LocalInstance, LocalNames } from './names.ts'
import { isLiving, type SeenInstance } from './records.ts'
import { RefusedFault, type Service } from './service.ts'
import { refuseOtherService } from './target.ts'

export type LocalDeps = {
  readonly service: Pick<Service, 'host' | 'create' | 'retrieve' | 'remove'>
  readonly names: LocalNames
  readonly clock: Pick<Clock, 'nowMs'>
  /** Prints a remark for people. */
  readonly hint: (text: string) => Promise<void>
}

/** The fields of a create, and the name for its instance. */
export type InstanceRequest = {
  readonly name: string
  /** Origin of service A. */
  readonly api: string
  readonly publicKey: string
  /** Null if the operator chooses. */
  readonly model: string | null
}

export type OpenedInstance = {
  readonly local: LocalInstance
  readonly record: SeenInstance
  readonly isCreated: boolean
}

/** A repeated Idempotency-Key returns the first instance for 24 hours; an hour is left for clocks that differ. */
const idempotentMs = 23 * 60 * 60 * 1000

/** Finds, takes over or creates the instance of the name. Faults of the service, and invalid_request. */
export async function openInstance(deps: LocalDeps, request: InstanceRequest): Promise<OpenedInstance> {
  const { names } = deps
  const found = names.find(request.name)
  if (found !== null) refuseOtherService(request.name, found, request.api)
  if (found === null || found.hostname === null) {
    return found === null
      ? ((await takeOver(deps, request)) ?? (await create(deps, request)))
      : await create(deps, request)
  }
  const record = await deps.service.retrieve(found.hostname.split('.')[0] ?? '')
  if (record !== null && isLiving(record.status)) {
    if (record.hostname === found.hostname) return { local: found, record, isCreated: false }
    throw contradiction(deps, `its record of ${record.name} has the host name ${record.hostname}`)
  }
  if (record === null) throw missing(deps, request.name, found.hostname)
  await leave(deps, request.name, record)
  return await create(deps, request)
}

/** Takes over the instance whose name the service drew, under that name. Null if there is none. */
async function takeOver(
  { service, names, clock }: LocalDeps,
  request: InstanceRequest,
): Promise<OpenedInstance | null> {
  const record = /^[a-z0-9]{8}$/.test(request.name) ? await service.retrieve(request.name) : null
  if (record === null || !isLiving(record.status)) return null
  const [other] = names.list().find(([, { hostname }]) => hostname === record.hostname) ?? []
  if (other !== undefined) {
    throw new InputFault(`${request.name} is called ${other} on this machine`, {
      param: 'name',
      remedy: `use the name ${other}`,
    })
  }
  if (!parsed(() => readSshKey(record.public_key)).ok)
    throw contradiction({ service }, `its record of ${record.name} has no public key`)
  const local = { ...begun(request, clock.nowMs()), publicKey: record.public_key, hostname: record.hostname }
  names.keep(request.name, local)
  return { local, record, isCreated: false }
}

/** Frees the name, whose VM is gone. */
async function leave(deps: LocalDeps, name: string, record: SeenInstance): Promise<void> {
  const { service, names, hint } = deps
  const detail = record.status === 'failed' ? ` (${failureWords(record).reason})` : ''
  await hint(`${name}: ${record.hostname} is ${record.status}${detail}; creating another one`)
  // A failed instance holds nothing, and counts towards the limit of the organization.
  if (record.status === 'failed') await service.remove(record.name)
  await names.alone(() => forgetKnownHost(names.knownHosts, record.hostname))
  names.forget(name)
}

async function create(deps: LocalDeps, request: InstanceRequest): Promise<OpenedInstance> {
  const { service, names, clock } = deps
  const { name, publicKey, model } = request
  const fresh = begun(request, clock.nowMs())
  let local = names.begin(name, fresh)
  const isFirst = local === fresh
  if (local.hostname !== null) throw busy(name)
  if (local.requestedAtMs > clock.nowMs() || clock.nowMs() - local.requestedAtMs > idempotentMs) {
    names.keep(name, fresh)
    local = fresh
  }
  if (!isSameKey(local.publicKey, publicKey) || local.model !== model) throw otherRequest(name)
  let record: SeenInstance
  try {
    const body = { public_key: local.publicKey, ...(local.model === null ? {} : { inference_model: local.model }) }
    record = await service.create(body, local.idempotencyKey)
  } catch (error) {
    // An earlier request under this key may have created one.
    if (isFirst && error instanceof RefusedFault && createsNothing.includes(error.httpStatus)) names.forget(name)
    throw error
  }
  const [other] = names.list().find(([, { hostname }]) => hostname === record.hostname) ?? []
  if (other !== undefined && other !== name)
    throw contradiction(deps, `it answers a create with ${record.hostname}, which is ${other} on this machine`)
  if (!isSameKey(record.public_key, local.publicKey))
    throw contradiction(deps, `its record of ${record.name} has another public key than the request`)
  const kept = { ...local, hostname: record.hostname }
  names.keep(name, kept)
  return { local: kept, record, isCreated: true }
}

/** Refusals of a new Idempotency-Key: nothing was created. 409: the limit of instances is reached. */
const createsNothing: readonly number[] = [400, 401, 403, 409, 413, 415, 429]

function begun({ api, publicKey, model }: InstanceRequest, nowMs: number): LocalInstance {
  return { api, idempotencyKey: newUuid(), publicKey, model, requestedAtMs: nowMs, hostname: null, address: null }
}

function isSameKey(a: string, b: string): boolean {
  const [first, second] = [parsed(() => readSshKey(a)), parsed(() => readSshKey(b))]
  return first.ok && second.ok && first.value.fingerprint === second.value.fingerprint
}

/** Makes the fault for an unknown instance. Records stay for 30 days, so the key is probably another one. */
function missing({ service }: LocalDeps, name: string, hostname: string): AdvisedFault {
  return new AdvisedFault('not_found', `${service.host} has no instance ${hostname} for this key`, {
    remedy: `check the key and --api; if the instance is gone for good, \`strongroom rm ${name}\` forgets the name`,
  })
}

function busy(name: string): AdvisedFault {
  return new AdvisedFault('conflict', `another command has just created ${name}`, {
    remedy: `run \`strongroom up ${name}\` again, which finds it`,
  })
}

function otherRequest(name: string): InputFault {
  return new InputFault(`an earlier \`strongroom up ${name}\` was interrupted, and named another SSH key or model`, {
    param: 'name',
    remedy: `repeat it with that key and model, or forget it by \`strongroom rm ${name}\``,
  })
}

function contradiction({ service }: Pick<LocalDeps, 'service'>, problem: string): AdvisedFault {
  return new AdvisedFault('internal', `${service.host}: ${problem}`, {
    remedy: 'this service contradicts itself: do not log in, and ask its operator over another channel',
  })
}
