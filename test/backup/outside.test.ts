// Which files of the operator a backup holds.

import { expect, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import { namedFiles } from '../../src/backup/outside.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { Config } from '../../src/config/schema.ts'

const IN_BACKUP = [
  'alerts.smtp_ca_file',
  'alerts.smtp_password_file',
  'alerts.webhook_ca_file',
  'alerts.webhook_secret_file',
  'builds.fetch_ca_file',
  'console.oidc.ca_file',
  'console.oidc.client_secret_file',
  'fleet.ca_file',
  'fleet.password_file',
  'inference.traces.ca_file',
  'inference.traces.headers_file',
  'inference.upstreams.attestation_collateral',
  'inference.upstreams.attestation_policy',
  'inference.upstreams.attestation_simulated_root',
  'inference.upstreams.ca_file',
  'inference.upstreams.key_file',
  'inference.worker.gpu_policy',
  'metrics.token_file',
  'network.proxy.password_file',
  'tls.acme.ca_file',
  'tls.acme.eab_key_file',
  'tls.certificate_file',
  'tls.key_file',
]

/** Images, models, firmware and programs: large, and made or installed again. */
const NOT_IN_BACKUP = [
  'builds.image_dir',
  'inference.worker.image_dir',
  'inference.worker.model_file',
  'vm.firmware',
  'vm.igvm',
  'vm.image_dir',
  'vm.qemu',
  'vm.swtpm',
]

/** Names of the fields below a schema that take the path of a file or directory. */
function pathFieldsOf(schema: TSchema, path: string): string[] {
  if (typeof schema.allowed === 'string' && schema.allowed.includes('an absolute path')) return [path]
  const fields: [string, TSchema][] = Object.entries(schema.properties ?? {})
  const inner = fields.flatMap(([name, field]) => pathFieldsOf(field, path === '' ? name : `${path}.${name}`))
  return schema.items === undefined ? inner : [...inner, ...pathFieldsOf(schema.items, path)]
}

// Goal: a field with a path that is added later must be placed: in the backup, or among what packages bring.
test('each field with a path has a place', () => {
  expect(pathFieldsOf(Config, '').toSorted()).toEqual([...IN_BACKUP, ...NOT_IN_BACKUP].toSorted())
})

// Goal: a backup holds every small file that a configuration names.
test('the files of every field are named', () => {
  const verdict = parseConfig(
    `
    [tls]
    certificate_file = "/f/tls.certificate_file"
    key_file = "/f/tls.key_file"
    [tls.acme]
    eab_kid = "a"
    eab_key_file = "/f/tls.acme.eab_key_file"
    ca_file = "/f/tls.acme.ca_file"
    [builds]
    fetch_ca_file = "/f/builds.fetch_ca_file"
    [fleet]
    database = "postgresql://a@db.example/strongroom"
    password_file = "/f/fleet.password_file"
    ca_file = "/f/fleet.ca_file"
    [inference.traces]
    headers_file = "/f/inference.traces.headers_file"
    ca_file = "/f/inference.traces.ca_file"
    [listen]
    console = "127.0.0.1:8444"
    [console.oidc]
    issuer = "https://id.example"
    client_id = "a"
    client_secret_file = "/f/console.oidc.client_secret_file"
    ca_file = "/f/console.oidc.ca_file"
    [[console.oidc.groups]]
    group = "a"
    role = "admin"
    [metrics]
    token_file = "/f/metrics.token_file"
    [network.proxy]
    url = "http://proxy.example:3128"
    user = "a"
    password_file = "/f/network.proxy.password_file"
    [alerts]
    webhook_url = "https://hook.example/x"
    webhook_secret_file = "/f/alerts.webhook_secret_file"
    webhook_ca_file = "/f/alerts.webhook_ca_file"
    smtp_server = "mail.example:587"
    email_from = "a@example.org"
    email_to = ["b@example.org"]
    smtp_user = "a"
    smtp_password_file = "/f/alerts.smtp_password_file"
    smtp_ca_file = "/f/alerts.smtp_ca_file"
    [inference.worker]
    model_file = "/f/model"
    gpu = ["0000:01:00.0"]
    gpu_policy = "/f/inference.worker.gpu_policy"
    [[inference.upstreams]]
    name = "a"
    url = "https://a.example/v1"
    models = ["m"]
    key_file = "/f/inference.upstreams.key_file"
    ca_file = "/f/inference.upstreams.ca_file"
    attestation_policy = "/f/inference.upstreams.attestation_policy"
    attestation_collateral = "/f/inference.upstreams.attestation_collateral"
    attestation_simulated_root = "/f/inference.upstreams.attestation_simulated_root"
    `,
    'strongroom.toml',
  )
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  expect(namedFiles(verdict.config).toSorted()).toEqual(IN_BACKUP.map(field => `/f/${field}`))
})

// Goal: a field that is not set names no file.
test('a configuration without files names none', () => {
  const verdict = parseConfig('', 'strongroom.toml')
  expect(verdict.ok && namedFiles(verdict.config)).toEqual([])
})
