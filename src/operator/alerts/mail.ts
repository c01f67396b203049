// Sends alerts as e-mails, over TLS alone. Effects: one connection for each message; reads the files of the password
// and of the authorities.

import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { onAbort } from '../../base/clock.ts'
import type { AlertsConfig } from '../../config/alerts/alerts.ts'
import { subjectOf, textOf } from './message.plan.ts'
import type { AlertSender } from './notifier.ts'
import { readSmall } from './webhook.ts'

export type MailSettings = Pick<
  AlertsConfig,
  'smtp_server' | 'smtp_tls' | 'smtp_user' | 'smtp_password_file' | 'smtp_ca_file' | 'email_from' | 'email_to'
>

/** Limits of one step and of a whole message, because a server may answer byte by byte for ever. */
const timeoutMs = 15_000
const messageTimeoutMs = 60_000

/** `limitMs`: for tests. */
export function createMail(settings: MailSettings, limitMs = messageTimeoutMs): AlertSender {
  const { smtp_server: server, email_from: from, email_to: to } = settings
  return {
    receiver: 'email',
    target: `${to.join(', ')} by ${server}`,
    send: async (message, signal) => {
      signal.throwIfAborted()
      const ending = new AbortController()
      const cancel = onAbort(signal, () => ending.abort(signal.reason))
      const timer = setTimeout(() => ending.abort(new Error(`the message was not taken within ${limitMs} ms`)), limitMs)
      try {
        const mail = {
          ...{ from, to: [...to], subject: subjectOf(message), text: textOf(message), date: new Date(message.at) },
          // The same for each attempt: a server that took the message already may drop the second.
          messageId: `<${message.id}@${from.split('@')[1]}>`,
          headers: { 'Auto-Submitted': 'auto-generated' },
          ...noAccess,
          // Closes the connection. The transport's own `close` ends none.
          signal: ending.signal,
        }
        await byFirst(settings, ending.signal, transport => transport.sendMail(mail))
      } catch (error) {
        ending.signal.throwIfAborted()
        throw error
      } finally {
        clearTimeout(timer)
        cancel()
      }
    },
  }
}

type Transport = Awaited<ReturnType<typeof openTransport>>

/** Sends by the first address of the server that accepts a connection. */
async function byFirst(settings: MailSettings, signal: AbortSignal, send: (by: Transport) => Promise<unknown>) {
  const { host, port } = serverOf(settings.smtp_server)
  const addresses = isIP(host) === 0 ? await addressesOf(host, signal) : [host]
  for (const [at, address] of addresses.entries()) {
    try {
      await send(await openTransport(settings, { address, host, port }))
      return
    } catch (error) {
      const isUnreached = Reflect.get(Object(error), 'command') === 'CONN'
      if (!isUnreached || at === addresses.length - 1) throw error
    }
  }
}

/** By the system, so that /etc/hosts counts also while no DNS server answers: the library would begin with DNS. */
async function addressesOf(host: string, signal: AbortSignal): Promise<string[]> {
  const aborted = new Promise<never>((_resolve, reject) => onAbort(signal, () => reject(signal.reason)))
  const found = await Promise.race([lookup(host, { all: true }), aborted])
  return found.map(({ address }) => address).slice(0, addressesMax)
}
/** No share: limits the attempts of one message. */
const addressesMax = 4

/** A message names no files or URLs to attach. */
const noAccess = { disableFileAccess: true, disableUrlAccess: true } as const

/** The library is loaded when the first message is sent. */
type ServerAddress = { readonly address: string; readonly host: string; readonly port: number }

async function openTransport(settings: MailSettings, { address, host, port }: ServerAddress) {
  const { createTransport } = await import('nodemailer')
  const isTlsAtOnce = settings.smtp_tls === 'tls'
  const { smtp_user: user, smtp_password_file: passwordFile, smtp_ca_file: caFile } = settings
  return createTransport({
    ...{ host: address, port, secure: isTlsAtOnce, requireTLS: !isTlsAtOnce },
    ...(user === '' ? {} : { auth: { user, pass: readSmall(passwordFile).trim() } }),
    tls: {
      ...{ minVersion: 'TLSv1.2', rejectUnauthorized: true },
      ...(isIP(host) === 0 ? { servername: host } : {}),
      ...(caFile === '' ? {} : { ca: readSmall(caFile) }),
    },
    ...{ connectionTimeout: timeoutMs, greetingTimeout: timeoutMs, socketTimeout: timeoutMs, dnsTimeout: timeoutMs },
    ...noAccess,
  })
}

function serverOf(text: string): { readonly host: string; readonly port: number } {
  const at = text.lastIndexOf(':')
  return { host: text.slice(0, at).replace(/^\[|\]$/g, ''), port: Number(text.slice(at + 1)) }
}
