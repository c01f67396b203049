// Sends an alert to two names, in a namespace whose DNS server takes every question and answers none. Argument: a
// directory for its files.

import { createSocket } from 'node:dgram'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startMailServer } from '../../../scripts/rigs/monitoring/mail-server.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { createMail } from '../../../src/operator/alerts/mail.ts'

const limitMs = 8_000
const [, , dir = ''] = process.argv
createSocket('udp4').bind(53, '127.0.0.1').unref()
const names = ['mail.internal']
const authority = await openAuthority({ kind: 'clients', stateDir: dir, names, nowMs: Date.now, random: systemRandom })
const server = await startMailServer({ kind: 'starttls', pair: await authority.issue(names, 1) })
const caFile = join(dir, 'authority.pem')
writeFileSync(caFile, authority.caPem)
const send = (name: string) =>
  createMail(
    {
      ...{ smtp_server: `${name}:${server.port}`, smtp_tls: 'starttls', smtp_ca_file: caFile },
      ...{ smtp_user: '', smtp_password_file: '', email_from: 'host@agents.example', email_to: ['ops@agents.example'] },
    },
    limitMs,
  )
    .send(
      {
        ...{ version: 1, id: 'msg_1', kind: 'test', at: '2026-11-30T12:00:00.000Z', ready: true, omitted: 0 },
        ...{ host: { id: 'h', domain: 'agents.example', version: '1' }, began: [], resolved: [], open: [] },
      },
      new AbortController().signal,
    )
    .then(
      () => `${name}: sent`,
      () => `${name}: not sent`,
    )
const first = await send('mail.internal')
const text = `${first}, ${server.mails.length} e-mails; ${await send('other.internal')}\n`
process.stdout.write(text, () => process.exit(0))
