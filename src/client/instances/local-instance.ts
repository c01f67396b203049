// The instance that a name of this machine stands for: found, taken over from the service, or created. Effects:
// requests to service A, the files of the names and of known hosts.

import { parsed } from '../../attest/malformed.ts'
import type { Clock } from '../../base/clock.ts'
import { newUuid } from '../../base/ids.ts'
import { type EgressPolicy, egressPolicyText } from '../../contract/http/egress-policy.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { readSshKey } from '../../verifier/ssh-key.ts'
import { forgetKnownHost } from '../known-hosts.ts'
import { failureWords } from './failure-remedies.ts'
import type { LocalInstance, LocalNames } from './names.ts'
import { isLiving, type SeenInstance } from './records.ts'
import { RefusedFault, type Service } from './service.ts'
import { ofService } from './target.ts'

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
  /** Destinations that its programs may reach; null for no restriction inside the VM. */
  readonly egress?: EgressPolicy | null
  /** Snapshot that a new instance is for, as the record of the name keeps it. */
  readonly restoring?: string
  /** Throws the fault for which no instance is created. Called before a create, and before a failed one is removed. */
  readonly refuseNew?: () => void
}

export type OpenedInstance = {
  readonly local: LocalInstance
  readonly record: SeenInstance
  readonly isCreated: boolean
}

/** A repeated Idempotency-Key returns the first instance for 24 hours; an hour is left for clocks that differ. */
const idempotentMs = 23 * 60 * 60 * 1000

/** No share: attempts of one command, each of which another command has outrun. */
const attemptsMax = 5

/** Finds, takes over or creates the instance of the name. Faults of the service, and invalid_request. */
export async function openInstance(deps: LocalDeps, request: InstanceRequest): Promise<OpenedInstance> {
  for (let attempts = 1; attempts <= attemptsMax; attempts += 1) {
    const opened = await attempt(deps, request)
    if (opened !== null) return opened
  }
  throw busy(request.name)
}

/** Null if another command has changed the name meanwhile. */
async function attempt(deps: LocalDeps, request: InstanceRequest): Promise<OpenedInstance | null> {
  const { names, service, clock } = deps
  const { name, api } = request
  const fresh = begun(request, clock.nowMs())
  const kept = names.find(name)
  if (kept === null) {
    const taken = await takeOver(deps, request)
    if (taken !== null) return taken
    request.refuseNew?.()
    const local = names.begin(name, fresh)
    return await create(deps, request, { local, isFirst: local === fresh })
  }
  const found = await ofService(name, kept, { names, api, service: () => service })
  if (found.hostname === null) {
    request.refuseNew?.()
    return await create(deps, request, { local: found, isFirst: false })
  }
  const record = await service.retrieve(found.hostname.split('.')[0] ?? '')
  if (record !== null && isLiving(record.status)) {
    if (record.hostname === found.hostname) return { local: found, record, isCreated: false }
    throw contradiction(deps, `its record of ${record.name} has the host name ${record.hostname}`)
  }
  if (record === null) throw missing(deps, name, found.hostname)
  request.refuseNew?.()
  await leave(deps, name, record)
  if (!(await names.replace(name, found, fresh))) return null
  return await create(deps, request, { local: fresh, isFirst: true })
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
  const { restoring: _, ...fresh } = begun(request, clock.nowMs())
  const local = { ...fresh, publicKey: record.public_key, hostname: record.hostname }
  if (names.begin(request.name, local) !== local) throw busy(request.name)
  return { local, record, isCreated: false }
}

/** Leaves the instance of the name, whose VM is gone. */
async function leave(deps: LocalDeps, name: string, record: SeenInstance): Promise<void> {
  const { service, names, hint } = deps
  const detail = record.status === 'failed' ? ` (${failureWords(record).reason})` : ''
  await hint(`${name}: ${record.hostname} is ${record.status}${detail}; creating another one`)
  // A failed instance holds nothing, and counts towards the limit of the organization.
  if (record.status === 'failed') await service.remove(record.name)
  await names.alone(() => forgetKnownHost(names.knownHosts, record.hostname))
}

type Beginning = {
  readonly local: LocalInstance
  /** No earlier request has its Idempotency-Key. */
  readonly isFirst: boolean
}

/** Null if another command has changed the name meanwhile. */
async function create(
  deps: LocalDeps,
  request: InstanceRequest,
  { local: begunLocal, isFirst }: Beginning,
): Promise<OpenedInstance | null> {
  const { service, names, clock } = deps
  const { name, publicKey, model, restoring } = request
  let local = begunLocal
  if (local.hostname !== null) return null
  if (local.requestedAtMs > clock.nowMs() || clock.nowMs() - local.requestedAtMs > idempotentMs) {
    const fresh = begun(request, clock.nowMs())
    if (!(await names.replace(name, local, fresh))) return null
    local = fresh
  }
  const isSame = local.model === model && local.egress === textOf(request) && local.restoring === restoring
  if (!isSameKey(local.publicKey, publicKey) || !isSame) throw otherRequest(name)
  let record: SeenInstance
  try {
    const body = {
      public_key: local.publicKey,
      ...(local.model === null ? {} : { inference_model: local.model }),
      ...(request.egress == null ? {} : { egress: request.egress }),
    }
    record = await service.create(body, local.idempotencyKey)
  } catch (error) {
    // An earlier request under this key may have created one.
    if (isFirst && error instanceof RefusedFault && createsNothing.includes(error.httpStatus))
      await names.replace(name, local, null)
    throw error
  }
  const [other] = names.list().find(([, { hostname }]) => hostname === record.hostname) ?? []
  if (other !== undefined && other !== name)
    throw contradiction(deps, `it answers a create with ${record.hostname}, which is ${other} on this machine`)
  if (!isSameKey(record.public_key, local.publicKey))
    throw contradiction(deps, `its record of ${record.name} has another public key than the request`)
  const kept = { ...local, hostname: record.hostname }
  // Another command may have forgotten the name: a VM that runs has a name here.
  if (!(await names.replace(name, local, kept)) && names.begin(name, kept) !== kept) throw nameless(name, record)
  return { local: kept, record, isCreated: true }
}

/** Refusals of a new Idempotency-Key: nothing was created. 409: the limit of instances is reached. */
const createsNothing: readonly number[] = [400, 401, 403, 409, 413, 415, 429]

/** The key goes without its comment, which may name a person and a machine. */
function begun(request: InstanceRequest, nowMs: number): LocalInstance {
  const { api, publicKey, model, restoring } = request
  const bare = publicKey.trim().split(/\s+/).slice(0, 2).join(' ')
  const egress = textOf(request)
  const more = { ...(egress === undefined ? {} : { egress }), ...(restoring === undefined ? {} : { restoring }) }
  const unknown = { hostname: null, address: null }
  return { api, idempotencyKey: newUuid(), publicKey: bare, model, requestedAtMs: nowMs, ...unknown, ...more }
}

function textOf({ egress }: InstanceRequest): string | undefined {
  return egress == null ? undefined : egressPolicyText(egress)
}

function isSameKey(a: string, b: string): boolean {
  const [first, second] = [parsed(() => readSshKey(a)), parsed(() => readSshKey(b))]
  return first.ok && second.ok && first.value.fingerprint === second.value.fingerprint
}

/** Makes the fault for an unknown instance. Records stay for 30 days, so the key is probably another one. */
function missing({ service }: LocalDeps, name: string, hostname: string): AdvisedFault {
  return new AdvisedFault('not_found', `${service.host} has no instance ${hostname} for this key`, {
    remedy: `check the key and --api; if the instance is gone for good, \`strongroom rm ${name} --forget\` forgets the name`,
  })
}

function busy(name: string): AdvisedFault {
  return new AdvisedFault('conflict', `another command has just created ${name}`, {
    remedy: `run \`strongroom up ${name}\` again, which finds it`,
  })
}

function nameless(name: string, record: SeenInstance): AdvisedFault {
  return new AdvisedFault('conflict', `${record.hostname} was created, but ${name} is another instance by now`, {
    remedy: `run \`strongroom up ${record.name}\` to use it, or \`strongroom rm ${record.name}\` to delete it`,
  })
}

function otherRequest(name: string): InputFault {
  return new InputFault(
    `an earlier \`strongroom up ${name}\` was interrupted, and named another SSH key, model, reach or snapshot`,
    {
      param: 'name',
      remedy: `repeat it with these, or forget it by \`strongroom rm ${name}\``,
    },
  )
}

function contradiction({ service }: Pick<LocalDeps, 'service'>, problem: string): AdvisedFault {
  return new AdvisedFault('internal', `${service.host}: ${problem}`, {
    remedy: 'this service contradicts itself: do not log in, and ask its operator over another channel',
  })
}
