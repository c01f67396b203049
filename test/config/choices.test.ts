// Goal: the fields of the configuration that take one of a few words, and these words, written out: one that goes would
// stop an appliance at its next start.

import { expect, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import { parseConfig } from '../../src/config/parse.ts'
import { Config } from '../../src/config/schema.ts'

/** `path: words` of each field below a schema that is a union of literals. */
function choicesOf(schema: TSchema, path: string): string[] {
  const options: TSchema[] = schema.anyOf ?? []
  if (options.length > 0 && options.every(option => 'const' in option)) {
    return [`${path}: ${options.map(option => JSON.stringify(option.const)).join(' ')}`]
  }
  const fields: [string, TSchema][] = Object.entries(schema.properties ?? {})
  const items: TSchema[] = schema.items === undefined ? [] : [schema.items]
  return [
    ...fields.flatMap(([name, field]) => choicesOf(field, path === '' ? name : `${path}.${name}`)),
    ...items.flatMap(item => choicesOf(item, path)),
    ...options.flatMap(option => choicesOf(option, path)),
  ]
}

test('goal: each field with its words', () => {
  expect(choicesOf(Config, '').toSorted()).toEqual([
    'alerts.severity: "critical" "warning"',
    'alerts.smtp_tls: "starttls" "tls"',
    'builds.auth: "key" "open"',
    'console.oidc.groups.role: "admin" "operator" "auditor"',
    'inference.pad_streams: "auto" "on" "off"',
    'inference.placement: "vm" "host"',
    'inference.response_receipts: "on-request" "always"',
    'inference.unknown_fields: "ignore" "refuse"',
    'inference.upstreams.attestation: "" "snp" "tdx"',
    'inference.upstreams.content: "image" "audio" "video" "file"',
    'inference.upstreams.engine: "openai" "llama-server" "vllm" "sglang" "text-embeddings-inference"',
    'log_level: "debug" "info" "warn" "error"',
    'network.forward_others: "leave" "drop"',
    'operator.admins.role: "admin" "operator" "auditor"',
    'platform: "auto" "snp" "kvm" "tcg"',
    'snapshots.at_idle_end: "on" "off"',
    'tls.acme.challenge: "auto" "dns-01" "http-01"',
    'vm.snp_boot: "bios" "igvm"',
    'vm.tpm: "auto" "off"',
  ])
})

test('goal: an administrator has one of three roles, and never the one of the read-only socket', () => {
  const verdict = (role: string) => parseConfig(`[[operator.admins]]\nuser = "ann"\nrole = "${role}"\n`, 'f').ok
  expect(['admin', 'operator', 'auditor'].map(verdict)).toEqual([true, true, true])
  expect(['monitor', 'root', 'Admin', ''].map(verdict)).toEqual([false, false, false, false])
})
