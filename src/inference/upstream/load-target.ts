// Upstreams as configured on the host. Effects: reads key and certificate files.

import { readFileSync } from 'node:fs'
import { Fault, messageOf } from '../../base/fault.ts'
import type { UpstreamConfig } from '../../config/upstream/upstream.ts'
import { loadAttestation } from './attested/load-attestation.ts'
import type { UpstreamTarget } from './target.ts'

/**
 * Loads an upstream with its key and certificate files. Faults: config.file; config.invalid if fields contradict each
 * other.
 */
export function loadUpstream(config: UpstreamConfig): UpstreamTarget {
  const where = `inference.upstreams "${config.name}"`
  const isTls = config.url.startsWith('https:')
  if (!isTls && (config.ca_file !== '' || config.spki_sha256 !== '')) {
    throw new Fault('config.invalid', `${where}: ca_file and spki_sha256 need an https url`)
  }
  // Alone, it would pin nothing, although an operator expects it to.
  if (config.spki_sha256 === '' && config.spki_sha256_next !== '') {
    throw new Fault('config.invalid', `${where}: spki_sha256_next needs spki_sha256`)
  }
  const key = config.key_file === '' ? null : readText(config.key_file, `${where}: key_file`).trim()
  if (key !== null && !/^[\x21-\x7e]{1,4096}$/.test(key)) {
    throw new Fault('config.file', `${where}: key_file must hold one line of printable ASCII`)
  }
  const attestation = loadAttestation(config, where)
  return {
    name: config.name,
    url: config.url.replace(/\/+$/, ''),
    unixSocket: null,
    key,
    engine: config.engine,
    models: config.models,
    embeddingModels: config.embedding_models,
    weight: config.weight,
    concurrencyMax: config.concurrency_max,
    choicesMax: config.choices_max,
    contextTokens: config.context_tokens === 0 ? null : config.context_tokens,
    content: config.content,
    remoteUrls: config.remote_urls,
    ca: config.ca_file === '' ? null : readText(config.ca_file, `${where}: ca_file`),
    spkiSha256: config.spki_sha256 === '' ? null : config.spki_sha256,
    ...(config.spki_sha256_next === '' ? {} : { spkiSha256Next: config.spki_sha256_next }),
    ...(attestation === null ? {} : { attestation }),
  }
}

function readText(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Fault('config.file', `${what}: ${messageOf(error)}`, { cause: error })
  }
}
