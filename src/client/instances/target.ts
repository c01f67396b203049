// Which instance a word of the command line means: a name of this machine, the name that service A drew, or a whole
// host name. Effects: reads the names, requests a record.

import { InvalidArgumentError } from 'commander'
import { InputFault } from '../../terminal/exit.ts'
import { type InstanceIdentity, readInstanceHostname } from '../../verifier/instance.ts'
import { type LocalInstance, type LocalNames, localNamePattern } from './names.ts'
import { defaultUser } from './openssh.ts'
import type { SeenInstance } from './records.ts'
import { RefusedFault, type Service } from './service.ts'

export type Target = {
  /** The name on this machine; null without one. */
  readonly localName: string | null
  readonly local: LocalInstance | null
  readonly instance: InstanceIdentity & { readonly domain: string }
}

const servicePattern = /^[a-z0-9]{8}$/

/** Returns the word if it may be a target. Throws commander's InvalidArgumentError. */
export function targetWord(text: string): string {
  if (localNamePattern.test(text) || readInstanceHostname(text) !== null) return text
  throw new InvalidArgumentError(
    'It must be a name of `strongroom ls`, or NAME.ORGANIZATION.DOMAIN in lower case; that NAME has 8 characters.',
  )
}

/** An account, and the word for its instance. */
export type UserAt = { readonly user: string; readonly word: string }

/** Reads USER@WORD, or WORD for the account of every instance. Throws commander's InvalidArgumentError. */
export function withUser(text: string, wordOf: (text: string) => string): UserAt {
  const at = text.lastIndexOf('@')
  const user = at === -1 ? defaultUser : text.slice(0, at)
  if (!/^[a-z_][a-z0-9_-]{0,31}$/.test(user)) throw new InvalidArgumentError('The user before the @ is no user name.')
  return { user, word: wordOf(text.slice(at + 1)) }
}

/** Reads [USER@]TARGET. Throws commander's InvalidArgumentError. */
export function targetArgument(text: string): UserAt {
  return withUser(text, targetWord)
}

export type Lookup = {
  readonly names: LocalNames
  /** Origin of service A; null if this command sends no request to it. */
  readonly api: string | null
  readonly service: () => Pick<Service, 'retrieve' | 'host'>
}

/** Finds the instance that the word means. Fault invalid_request, and those of the service. */
export async function resolveTarget(word: string, lookup: Lookup): Promise<Target> {
  const { names, service } = lookup
  const whole = readInstanceHostname(word)
  if (whole !== null) {
    const [localName, local] = names.list().find(([, { hostname }]) => hostname === word) ?? [null, null]
    return { localName, local, instance: whole }
  }
  const found = names.find(word)
  if (found !== null) {
    const local = await ofService(word, found, lookup)
    return { localName: word, local, instance: instanceOf(word, local) }
  }
  const record = servicePattern.test(word) ? await service().retrieve(word) : null
  const instance = record === null ? null : readInstanceHostname(record.hostname)
  if (instance === null) throw unknownName(word)
  const [localName, known] = names.list().find(([, { hostname }]) => hostname === instance.hostname) ?? [null, null]
  return { localName, local: known, instance }
}

export function unknownName(word: string): InputFault {
  return new InputFault(`no instance is called ${word}`, {
    param: 'name',
    remedy: '`strongroom ls` lists them; `strongroom up NAME` creates one',
  })
}

function instanceOf(name: string, local: LocalInstance): Target['instance'] {
  const instance = local.hostname === null ? null : readInstanceHostname(local.hostname)
  if (instance !== null) return instance
  throw new InputFault(`${name}: its creation did not finish`, {
    param: 'name',
    remedy: `run \`strongroom up ${name}\`, which goes on with it`,
  })
}

/**
 * Returns the record for the service in use, which may be the earlier one at a new address, or another host of its
 * fleet: a record with the same host name shows it, and changes the address. Evidence decides what runs there in any
 * case. Fault invalid_request for another service, for which the key in use is not.
 */
export async function ofService(
  name: string,
  local: LocalInstance,
  { names, api, service }: Lookup,
): Promise<LocalInstance> {
  if (api === null || local.api === api) return local
  const drawn = readInstanceHostname(local.hostname ?? '')
  const record = drawn === null ? null : await seen(service(), drawn.name)
  if (record === null || record.hostname !== local.hostname) throw otherService(name, local, api)
  const moved = { ...local, api }
  await names.replace(name, local, moved)
  return moved
}

/** Returns null also if the service refuses the key, as another appliance does. */
async function seen(service: Pick<Service, 'retrieve'>, name: string): Promise<SeenInstance | null> {
  try {
    return await service.retrieve(name)
  } catch (error) {
    if (error instanceof RefusedFault && (error.httpStatus === 401 || error.httpStatus === 403)) return null
    throw error
  }
}

function otherService(name: string, local: LocalInstance, api: string): InputFault {
  const whole = local.hostname === null ? '' : `, use the whole host name ${local.hostname} with \`ssh\` and \`rm\``
  return new InputFault(`${name} is an instance of ${local.api}, not of ${api}`, {
    param: 'api',
    remedy: `add --api ${local.api} and the --key-file for it${whole}, or take another name; if that service is gone, \`strongroom rm ${name} --forget\` frees this one`,
  })
}
