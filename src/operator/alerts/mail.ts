// Sends alerts as e-mails, over TLS alone. Effects: one connection for each message; reads the files of the password
// and of the authorities.

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
      const transport = await openTransport(settings)
      const ending = new AbortController()
      const cancel = onAbort(signal, () => ending.abort(signal.reason))
      const timer = setTimeout(() => ending.abort(new Error(`the message was not taken within ${limitMs} ms`)), limitMs)
      try {
        await transport.sendMail({
          ...{ from, to: [...to], subject: subjectOf(message), text: textOf(message), date: new Date(message.at) },
          // The same for each attempt: a server that took the message already may drop the second.
          messageId: `<${message.id}@${from.split('@')[1]}>`,
          headers: { 'Auto-Submitted': 'auto-generated' },
          ...noAccess,
          // Closes the connection. The transport's own `close` ends none.
          signal: ending.signal,
        })
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

/** A message names no files or URLs to attach. */
const noAccess = { disableFileAccess: true, disableUrlAccess: true } as const

/** The library is loaded when the first message is sent. */
async function openTransport(settings: MailSettings) {
  const { createTransport } = await import('nodemailer')
  const { host, port } = serverOf(settings.smtp_server)
  const isTlsAtOnce = settings.smtp_tls === 'tls'
  const { smtp_user: user, smtp_password_file: passwordFile, smtp_ca_file: caFile } = settings
  return createTransport({
    ...{ host, port, secure: isTlsAtOnce, requireTLS: !isTlsAtOnce },
    ...(user === '' ? {} : { auth: { user, pass: readSmall(passwordFile).trim() } }),
    tls: { minVersion: 'TLSv1.2', rejectUnauthorized: true, ...(caFile === '' ? {} : { ca: readSmall(caFile) }) },
    ...{ connectionTimeout: timeoutMs, greetingTimeout: timeoutMs, socketTimeout: timeoutMs, dnsTimeout: timeoutMs },
    ...noAccess,
  })
}

function serverOf(text: string): { readonly host: string; readonly port: number } {
  const at = text.lastIndexOf(':')
  return { host: text.slice(0, at).replace(/^\[|\]$/g, ''), port: Number(text.slice(at + 1)) }
}
