// Contradictions in the table `alerts` of the configuration. Pure.

import type { AlertsConfig } from '../alerts/alerts.ts'
import type { CrossProblem } from './builds.ts'

export function alertsProblems(alerts: AlertsConfig): CrossProblem[] {
  const field = (name: keyof AlertsConfig) => `alerts.${name}`
  return [
    ...webhookProblems(alerts, field),
    ...when(alerts.smtp_server !== '' && alerts.email_to.length === 0, {
      field: field('email_to'),
      message: 'must name at least one recipient, because smtp_server is set',
    }),
    ...when(alerts.smtp_server !== '' && alerts.email_from === '', {
      field: field('email_from'),
      message: 'must name the sender, because smtp_server is set',
    }),
    ...when(alerts.smtp_server === '' && alerts.email_to.length > 0, {
      field: field('smtp_server'),
      message: 'must name the mail server, because email_to is set',
    }),
    ...when((alerts.smtp_user === '') !== (alerts.smtp_password_file === ''), {
      field: field(alerts.smtp_user === '' ? 'smtp_user' : 'smtp_password_file'),
      message: 'smtp_user and smtp_password_file belong together; set both or none',
    }),
    ...when(alerts.smtp_server !== '' && Number(alerts.smtp_server.split(':').at(-1)) > 65_535, {
      field: field('smtp_server'),
      message: `${JSON.stringify(alerts.smtp_server)} has no port from 0 to 65535`,
    }),
  ]
}

function webhookProblems(
  { webhook_url, webhook_secret_file, webhook_ca_file }: AlertsConfig,
  field: (name: keyof AlertsConfig) => string,
): CrossProblem[] {
  if (webhook_url === '') {
    const message = 'needs webhook_url'
    return [
      ...when(webhook_secret_file !== '', { field: field('webhook_secret_file'), message }),
      ...when(webhook_ca_file !== '', { field: field('webhook_ca_file'), message }),
    ]
  }
  const url = URL.canParse(webhook_url) ? new URL(webhook_url) : null
  if (url === null) return [{ field: field('webhook_url'), message: `${JSON.stringify(webhook_url)} is not a URL` }]
  const isTls = url.protocol === 'https:'
  return [
    ...when(!isTls && !isLoopback(url.hostname), {
      field: field('webhook_url'),
      message: 'needs https: what is wrong with this host would be sent in the clear to another host',
    }),
    ...when(!isTls && webhook_ca_file !== '', { field: field('webhook_ca_file'), message: 'needs an https URL' }),
    ...when(url.username !== '' || url.password !== '', {
      field: field('webhook_url'),
      message: 'may hold no user or password; the receiver checks the signature instead',
    }),
  ]
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.[0-9.]+$/.test(hostname)
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
