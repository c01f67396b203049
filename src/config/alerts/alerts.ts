// Receivers of alerts: the table `alerts` of the configuration. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { PROBLEM_SEVERITIES } from '../../contract/admin/problems.ts'
import { Count, OneOf, PathOrNone, Section } from '../fields.ts'

const emailPattern = '[^\\s<>@,;:"\\\\]{1,64}@[a-zA-Z0-9.-]{1,253}'

export const AlertsConfig = Section({
  severity: OneOf(PROBLEM_SEVERITIES, {
    default: 'warning',
    description: '"critical" notifies only of problems that keep this host from being ready; "warning" of all.',
  }),
  after_s: Count([120, 0, 86_400], 'A problem is notified once it has lasted for this time.'),
  group_s: Count([30, 0, 3_600], 'Changes within this time are sent in one message.'),
  repeat_hours: Count(
    [24, 0, 720],
    'While critical problems last, a reminder is sent after this time. 0 for no reminder.',
  ),
  webhook_url: Type.String({
    default: '',
    pattern: '^$|^https?://\\S+$',
    maxLength: 2_048,
    allowed: '"" or an http or https URL',
    description:
      'URL that gets each message as JSON by POST, signed as Standard Webhooks are (standardwebhooks.com). "" for none.',
  }),
  webhook_secret_file: PathOrNone(
    'File with the secret of the signature: `whsec_` and 24 to 64 bytes in base64, read again for each message. "" for `alerts-secret` in the state directory, which the daemon makes.',
  ),
  webhook_ca_file: PathOrNone(
    'File with the PEM certificates of the authorities to trust for the webhook. "" for those of the system.',
  ),
  smtp_server: Type.String({
    default: '',
    pattern: '^$|^([a-zA-Z0-9.-]{1,253}|\\[[0-9a-fA-F:.]{2,45}\\]):[0-9]{1,5}$',
    allowed: '"" or HOST:PORT',
    description: 'Mail server that takes messages for `email_to`, such as "mail.example.org:587". "" for no e-mail.',
  }),
  smtp_tls: OneOf(['starttls', 'tls'], {
    default: 'starttls',
    description: '"tls" from the first byte (port 465), or "starttls" (port 587). Nothing is sent without TLS.',
  }),
  smtp_user: Type.String({
    default: '',
    maxLength: 256,
    description: 'User at the mail server. "" for no log-in.',
  }),
  smtp_password_file: PathOrNone('File with the password of `smtp_user`, read again for each message.'),
  smtp_ca_file: PathOrNone(
    'File with the PEM certificates of the authorities to trust for the mail server. "" for those of the system.',
  ),
  email_from: Type.String({
    default: '',
    pattern: `^$|^${emailPattern}$`,
    allowed: '"" or an e-mail address',
    description: 'Sender of e-mails.',
  }),
  email_to: Type.Array(Type.String({ pattern: `^${emailPattern}$`, allowed: 'an e-mail address' }), {
    default: [],
    maxItems: 16,
    uniqueItems: true,
    description: 'Recipients of e-mails.',
  }),
})
export type AlertsConfig = Static<typeof AlertsConfig>
