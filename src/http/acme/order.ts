// One account and its orders at an ACME server (RFC 8555 7.3, 7.4), by acme-client. Effects: the network, the account's
// file, challenges.
//
// The library is loaded when the first order begins: an appliance without ACME does not pay for it.

import { createHash, generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import type { Client } from 'acme-client'
import { toBase64 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import { createSerial } from '../../base/work/serial.ts'
import type { AcmeConfig, ChallengeType } from '../../config/acme.ts'
import { readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import type { Outgoing } from '../../linux/net/outgoing.ts'
import type { Challenges } from './challenges.ts'
import { AcmeFailure, type AcmeServer, converse, send } from './transport.ts'

export type AccountDeps = {
  /** Where its file is: key and URL. */
  readonly dir: string
  readonly config: AcmeConfig
  readonly outgoing: Outgoing
  readonly clock: Clock
  /** First pause between two questions about an order. */
  readonly pollMs: number
}

export type Order = {
  readonly name: string
  readonly challenge: ChallengeType
  /** PKCS #10, DER, for this name alone. */
  readonly csr: Uint8Array
  /** Identifier of the certificate that this one replaces (RFC 9773 5). */
  readonly replaces?: string
}

export type PlaceOrder = (order: Order, challenges: Challenges, signal: AbortSignal) => Promise<string>

const orderTimeoutMs = 180_000
const pollAttempts = 30
/** The pause grows to so many times the first. */
const pollGrowth = 5

const Account = Type.Object({
  directory: Type.String(),
  /** Null if not registered yet. */
  url: Type.Union([Type.String(), Type.Null()]),
  contact: Type.Array(Type.String()),
  /** PKCS #8, PEM. */
  key: Type.String(),
})
type Account = Static<typeof Account>

/**
 * The account of the configured directory; its key is made on first use. The result places one order: it resolves with
 * a PEM chain as the server gave it, unchecked, or rejects with an AcmeFailure. Fault config.file: `eab_key_file` or
 * `ca_file` cannot be read.
 */
export function openAccount({ dir, config, outgoing, clock, pollMs }: AccountDeps): PlaceOrder {
  const { directory, eab_kid: kid } = config
  const file = join(dir, `account-${createHash('sha256').update(directory).digest('hex').slice(0, 16)}.json`)
  const hmacKey = config.eab_key_file === '' ? null : readNamed('eab_key_file', config.eab_key_file).trim()
  const server = acmeServer(config, outgoing, clock)
  const contact = config.contact.map(address => `mailto:${address}`)
  let account = readAccount(file, directory) ?? newAccount(file, directory)
  let client: Client | null = null

  const clientOf = async (): Promise<Client> => {
    const acme = await loadLibrary()
    return new acme.Client({
      directoryUrl: directory,
      accountKey: account.key,
      ...(account.url === null ? {} : { accountUrl: account.url }),
      ...(hmacKey === null ? {} : { externalAccountBinding: { kid, hmacKey } }),
      backoffAttempts: pollAttempts,
      backoffMin: pollMs,
      backoffMax: pollGrowth * pollMs,
    })
  }
  const save = (next: Account) => {
    account = next
    writeAccount(file, next)
  }
  /** Two orders may begin at the same time, and one that fails takes the client away. */
  const serial = createSerial()
  const register = async (): Promise<Client> => {
    const mine = client ?? (await clientOf())
    client = mine
    if (account.url === null) {
      await mine.createAccount({ termsOfServiceAgreed: config.terms_agreed, contact })
      save({ ...account, url: mine.getAccountUrl(), contact })
    } else if (account.contact.join() !== contact.join()) {
      await mine.updateAccount({ contact })
      save({ ...account, contact })
    }
    return mine
  }
  return (order, challenges, signal) =>
    converse(server, { timeoutMs: orderTimeoutMs, signal }, async () =>
      placeOrder(await serial.run(register), order, challenges),
    ).catch(error => {
      // The server has forgotten it, as after a move of its database: the next order registers again.
      if (error instanceof AcmeFailure && error.type === 'urn:ietf:params:acme:error:accountDoesNotExist') {
        save({ ...account, url: null })
      }
      // The client's nonces and directory are outdated.
      client = null
      throw error
    })
}

/** Returns the server of a configuration. Throws Fault config.file if `ca_file` cannot be read. */
export function acmeServer({ directory, ca_file: file }: AcmeConfig, outgoing: Outgoing, clock: Clock): AcmeServer {
  const ca = file === '' ? undefined : readNamed('ca_file', file)
  return { origin: new URL(directory).origin, ca, outgoing, clock }
}

let loading: Promise<typeof import('acme-client')> | null = null

function loadLibrary(): Promise<typeof import('acme-client')> {
  loading ??= (async () => {
    // The library's copy of x509 loads reflect-metadata, which needs this in addition to the functions of
    // attest/x509/runtime.ts.
    if (!Reflect.has(Reflect, 'getOwnMetadataKeys')) Object.assign(Reflect, { getOwnMetadataKeys: () => [] })
    const acme = await import('acme-client')
    acme.axios.defaults.adapter = send as typeof acme.axios.defaults.adapter & typeof send
    return acme
  })()
  return loading
}

async function placeOrder(
  client: Client,
  { name, challenge: type, csr, replaces }: Order,
  challenges: Challenges,
): Promise<string> {
  const named = replaces === undefined ? {} : { replaces }
  const order = await client.createOrder({ identifiers: [{ type: 'dns', value: name }], ...named })
  if (order.authorizations?.length !== 1) throw new Error('the order has not one authorization for one name')
  const [authorization] = await client.getAuthorizations(order)
  const plain = name.replace(/^\*\./, '')
  if (authorization?.identifier?.value !== plain) throw new Error('the authorization is for another name')
  if (authorization.status !== 'valid') {
    const challenge = authorization.challenges?.find(challenge => challenge.type === type)
    if (challenge === undefined) throw new Error(`the server offers no ${type} for ${name}`)
    const proof = await client.getChallengeKeyAuthorization(challenge)
    await using _shown =
      type === 'dns-01' ? await challenges.showText(name, proof) : await challenges.showToken(challenge.token, proof)
    await client.completeChallenge(challenge)
    await client.waitForValidStatus(challenge)
  }
  const lines = toBase64(csr).replaceAll(/.{64}(?=.)/g, '$&\n')
  const pem = `-----BEGIN CERTIFICATE REQUEST-----\n${lines}\n-----END CERTIFICATE REQUEST-----\n`
  const final = await client.finalizeOrder(order, pem)
  const chain: unknown = await client.getCertificate(final)
  if (typeof chain !== 'string') throw new Error('the answer holds no PEM certificate')
  return chain
}

function readAccount(file: string, directory: string): Account | null {
  const text = readTextOrNull(file)
  if (text === null) return null
  try {
    const value: unknown = JSON.parse(text)
    if (Value.Check(Account, value) && value.directory === directory) return value
  } catch {
    // Handled like an account that does not fit.
  }
  throw new Fault('internal', `${file} cannot be read; remove it to register a new account at the ACME server`)
}

function newAccount(file: string, directory: string): Account {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  const account: Account = { directory, url: null, contact: [], key }
  writeAccount(file, account)
  return account
}

function writeAccount(file: string, account: Account): void {
  writeFileAtomic(file, `${JSON.stringify(account)}\n`, { mode: 0o600 })
}

function readNamed(name: 'ca_file' | 'eab_key_file', path: string): string {
  const param = `tls.acme.${name}`
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Fault('config.file', wrapFault(error, `${param} ${path}`).message, { param, cause: error })
  }
}
